
-- Sums over the holds of a budget.

local function idle(hold) return less(hold.lease, hold.used) end

local function add_to_sums(budget, hold, sign)
  budget.leased = budget.leased + sign * hold.lease
  budget.excess = budget.excess + sign * hold.excess
  budget.unmet = budget.unmet + sign * hold.unmet
  budget.waiting = budget.waiting + sign * hold.waiting
  budget.idle = budget.idle + sign * idle(hold)
  budget.lacking = budget.lacking + sign * hold.lacking
end

local function held(budget) return budget.leased + budget.excess end

local function over(budget) return less(held(budget), budget.limit) end

local function set_lease(hold, lease, others)
  hold.lease = lease
  hold.excess = math.min(less(hold.used, lease), MAX_UNITS - held(others) - lease)
end

local function clear_hold(hold)
  hold.lease, hold.used, hold.want, hold.excess, hold.unmet, hold.lacking, hold.waiting = 0, 0, 0, 0, 0, 0, 0
end

local function is_blank(hold, closing)
  return hold.lease == 0 and (closing == 1 or (hold.used == 0 and hold.want == 0 and hold.refused == 0))
end

-- Who gets what is left.

local function part(free, need, unmet)
  local all = need + unmet
  if all <= free then return need end
  return math.min(math.ceil(free * (need / all)), free, need)
end

local function grant(others, hold, need, urgent)
  local left = less(others.limit, held(others) + hold.lease)
  local first = math.min(need, less(others.minimum, hold.lease), left)
  local free = less(left - first, others.lacking)
  local whole = less(math.min(urgent, need), first)
  if whole > free then
    if others.waiting > 0 then return first end
    whole = 0
  end
  local got = first + whole
  return got + part(free - whole, need - got, others.unmet)
end

local function wanted(budget, hold)
  return math.min(budget.waiting - hold.waiting, less(hold.lease, budget.minimum))
end

local function fraction(mine, needed, all)
  if needed >= all then return mine end
  return math.min(math.ceil(mine * (needed / all)), mine)
end

local function asked(budget, hold)
  local by = over(budget)
  local from_idle = fraction(idle(hold), by + (budget.unmet - hold.unmet), budget.idle)
  if by == 0 then return math.min(from_idle, less(hold.lease, budget.minimum)) end
  return from_idle + fraction(hold.lease - idle(hold), less(by, budget.idle), budget.leased - budget.idle)
end
