
-- How leases end.

local function release(book, field, hold)
  local path = path_of(field)
  local budget = get(book, 'budgets', path)
  put(book, 'holds', field, false)
  if not budget then return end
  add_to_sums(budget, hold, -1)
  budget.holds = budget.holds - 1
  if hold.lease > 0 and budget.unmet > 0 then nudge(book, path) end
  put(book, 'budgets', path, (budget.closing == 0 or budget.holds > 0) and budget)
end

local function put_node(book, name, node)
  put(book, 'nodes', name, (node.starts > 0 or node.draining) and node)
end

local function release_all(book, who)
  for _, field in ipairs(holds_of(book, who)) do
    local hold = get(book, 'holds', field)
    if hold then release(book, field, hold) end
  end
end

local function expire(book)
  for _, who in ipairs(redis.call('ZRANGEBYSCORE', book.ends, '-inf', whole(book.time))) do
    local name = name_of(who)
    local incarnation, node = get(book, 'incarnations', who), get(book, 'nodes', name)
    release_all(book, who)
    put(book, 'incarnations', who, false)
    -- (A store may have lost either row.)
    if node then
      node.starts = node.starts - 1
      put_node(book, name, node)
    end
    if incarnation and incarnation.left == 0 then tell(book, name, 'ended', string.sub(who, -16)) end
  end
end

-- As long as the node believes in its leases, and as the book has promised before, whatever the terms have become.
local function renew(book, incarnation, left)
  incarnation.at = book.time
  incarnation.ends = book.time + book.ttl
  incarnation.grace = book.grace
  incarnation.freed = math.max(incarnation.freed, incarnation.ends + incarnation.grace, book.time + left)
end

local function clear(book, who, incarnation)
  incarnation.lost = 0
  for _, field in ipairs(holds_of(book, who)) do
    local hold = get(book, 'holds', field)
    local path = path_of(field)
    local budget = hold and get(book, 'budgets', path)
    if budget then
      if hold.refused == 0 or budget.closing == 1 then
        release(book, field, hold)
      else
        add_to_sums(budget, hold, -1)
        if hold.lease > 0 and budget.unmet > 0 then nudge(book, path) end
        clear_hold(hold)
        put(book, 'budgets', path, budget)
        put(book, 'holds', field, hold)
      end
    end
  end
end

local function is_former(node, incarnation)
  for _, earlier in ipairs(node.former) do
    if earlier == incarnation then return true end
  end
  return false
end

-- One whose leases ended, of which the book knows nothing any more, takes the name from nobody: its message may be late.
local function has_name(book, name, incarnation, sync)
  local node = get(book, 'nodes', name)
  if not node then node = { current = NOBODY, draining = false, starts = 0, former = {} } end
  local older = node.current
  if older == incarnation then return true end
  if is_former(node, incarnation) then return false end
  local is_late = older ~= NOBODY and sync.taken > 0 and sync.until_time <= book.time
  if is_late and not get(book, 'incarnations', name .. '\0' .. incarnation) then return false end
  node.current = incarnation
  put(book, 'nodes', name, node)
  if older == NOBODY then return true end
  if #node.former == FORMER then table.remove(node.former, 1) end
  table.insert(node.former, older)
  local fenced = get(book, 'incarnations', name .. '\0' .. older)
  if not fenced or fenced.left == 1 then return true end
  for _, field in ipairs(holds_of(book, name .. '\0' .. older)) do
    local hold = get(book, 'holds', field)
    local path = path_of(field)
    local budget = hold and get(book, 'budgets', path)
    if budget then
      add_to_sums(budget, hold, -1)
      hold.unmet, hold.lacking, hold.waiting, hold.entitled = 0, 0, 0, 0
      add_to_sums(budget, hold, 1)
      put(book, 'budgets', path, budget)
      put(book, 'holds', field, hold)
    end
  end
  tell(book, name, 'fenced', older)
  return true
end
