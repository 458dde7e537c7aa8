
-- Sums over the holds of a budget.

local function idle(hold) return less(hold.lease, hold.used) end

local function is_head(budget, hold) return hold.entitled > 0 and hold.since == budget.head_since end

local function add_to_sums(budget, hold, sign)
  budget.leased = budget.leased + sign * hold.lease
  budget.excess = budget.excess + sign * hold.excess
  budget.unmet = budget.unmet + sign * hold.unmet
  budget.waiting = budget.waiting + sign * hold.waiting
  budget.idle = budget.idle + sign * idle(hold)
  budget.lacking = budget.lacking + sign * hold.lacking
  budget.entitled = budget.entitled + sign * hold.entitled
  if hold.lease > 0 or hold.want > 0 or hold.used > 0 then budget.sharers = budget.sharers + sign end
  if hold.waiting > 0 then
    budget.hungry = budget.hungry + sign
    budget.hungry_leased = budget.hungry_leased + sign * hold.lease
  end
  if sign < 0 and is_head(budget, hold) then
    budget.head_since, budget.head_lacks, budget.head_large = 0, 0, 0
  elseif sign > 0 and hold.entitled > 0 and (budget.head_since == 0 or hold.since < budget.head_since
    or hold.since == budget.head_since and hold.entitled > budget.head_lacks) then
    budget.head_since, budget.head_lacks, budget.head_large = hold.since, hold.entitled, hold.large
  end
end

local function held(budget) return budget.leased + budget.excess end

local function over(budget) return less(held(budget), budget.limit) end

local function set_lease(hold, lease, others)
  hold.lease = lease
  hold.excess = math.min(less(hold.used, lease), MAX_UNITS - held(others) - lease)
end

local function clear_hold(hold)
  hold.lease, hold.used, hold.want, hold.excess, hold.unmet, hold.lacking, hold.waiting = 0, 0, 0, 0, 0, 0, 0
  hold.entitled, hold.since, hold.large = 0, 0, 0
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

-- (Doubles round a quotient; a remainder is exact.)
local function quotient(a, b) return (a - math.fmod(a, b)) / b end

-- The lease up to which a node's waiting charges go before those of nodes that have more.
local function level(limit, minimum, sharers, leased, hungry, hungry_leased)
  local equal = quotient(limit, math.max(sharers, 1))
  local rest = hungry > 0 and quotient(less(limit, leased - hungry_leased), hungry) or 0
  return math.max(equal, rest, minimum)
end

local function level_of(budget)
  return level(budget.limit, budget.minimum, budget.sharers, budget.leased, budget.hungry, budget.hungry_leased)
end

-- What is set aside for a hold for whose charges it waits. `others` is the budget without it.
local function entitle(others, hold, waiting, said, time, ttl)
  local shares = (hold.lease > 0 or hold.want > 0 or hold.used > 0) and 1 or 0
  local hungry = waiting > 0 and 1 or 0
  if waiting == 0 or said.next > others.limit then return 0, 0, 0 end
  local part = level(others.limit, others.minimum, others.sharers + shares, others.leased + hold.lease, others.hungry + hungry,
    others.hungry_leased + hungry * hold.lease)
  local lacks = math.min(less(said.next, hold.lease), waiting)
  local room = less(part, hold.lease)
  local large = less(said.next, said.used) > part
  local entitled = 0
  if large then
    if said.waited >= ttl then entitled = lacks end
  elseif lacks <= room then
    entitled = math.min(waiting, room)
  end
  return entitled, entitled > 0 and less(time, said.waited) + 1 or 0, large and 1 or 0
end

local function due(budget, hold, said, grown)
  if is_head(budget, hold) then return 0 end
  local part = level_of(budget)
  local kept = (grown or less(said.next, said.used) > part) and said.next or 0
  local over_level = math.min(budget.entitled - hold.entitled, less(hold.lease, math.max(part, kept)))
  local gathered = budget.head_large == 1 and budget.head_lacks or 0
  return math.max(over_level, math.min(gathered, less(hold.lease, math.max(budget.minimum, kept))))
end

local function grant(others, hold, entitled, since, need, urgent, next_one)
  local left = less(others.limit, held(others) + hold.lease)
  local first = math.min(need, less(others.minimum, hold.lease), left)
  local free = less(left - first, others.lacking)
  local head = entitled > 0 and (others.head_since == 0 or since <= others.head_since)
  local before = head and 0 or entitled > 0 and others.head_lacks or others.entitled
  urgent = math.min(urgent, need)
  next_one = less(math.min(next_one, urgent), first)
  urgent = less(urgent, first)
  local mine = less(entitled, first)
  local free_now = less(free, before)
  local whole = 0
  if urgent <= free_now then
    whole = urgent
  elseif others.waiting > 0 then
    if next_one > free_now then return first end
    whole = math.min(math.max(next_one, math.min(mine, urgent)), free_now)
  end
  local got = first + whole
  local rest = less(free - whole, others.entitled)
  return got + part(rest, need - got, others.unmet)
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
