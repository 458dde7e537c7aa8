
-- Damage: a store that evicts keys, or an operator who deletes one, takes a part of a book.

local function length(command, key) return redis.call(command, key) end

-- (Without any budgets nodes are told that there are none. What they hold is dropped when an operator makes one again.)
local function is_damaged(book, operates)
  local keys = book.keys
  local holds, starts = length('HLEN', keys.holds), length('HLEN', keys.incarnations)
  return holds ~= length('ZCARD', book.index) or starts ~= length('ZCARD', book.ends)
    or holds > 0 and (starts == 0 or operates and length('HLEN', keys.budgets) == 0)
    or starts > 0 and (book.is_new or length('HLEN', keys.nodes) == 0)
end

-- Recomputes all sums from what nodes hold, as src/book/repair.rs does, and mends what refers to rows that are not there.
local function recount(book)
  local keys, before, starts = book.keys, {}, {}
  for _, path in ipairs(redis.call('HKEYS', keys.budgets)) do
    local was = get(book, 'budgets', path)
    local budget = blank(BUDGET)
    budget.limit, budget.minimum, budget.closing, budget.refused = was.limit, was.minimum, was.closing, was.refused
    before[path] = was
    put(book, 'budgets', path, budget)
  end
  for _, who in ipairs(redis.call('HKEYS', keys.incarnations)) do
    local incarnation, name = get(book, 'incarnations', who), name_of(who)
    put(book, 'incarnations', who, incarnation)
    local node = get(book, 'nodes', name)
    if not node then node = { current = string.sub(who, -16), draining = false, starts = 0, former = {} } end
    starts[name] = (starts[name] or 0) + 1
    put(book, 'nodes', name, node)
  end
  for name, count in pairs(starts) do book.nodes[name].starts = count end
  for _, field in ipairs(redis.call('HKEYS', keys.holds)) do
    local hold = get(book, 'holds', field)
    local budget = get(book, 'budgets', path_of(field))
    if budget and get(book, 'incarnations', string.match(field, '^(%Z+%z%x+)%z')) then
      budget.holds = budget.holds + 1
      add_to_sums(budget, hold, 1)
      hold.fresh = true
      put(book, 'holds', field, hold)
    else
      put(book, 'holds', field, false)
    end
  end
  for _, field in ipairs(redis.call('ZRANGEBYLEX', book.index, '-', '+')) do
    if not get(book, 'holds', field) then put(book, 'holds', field, false) end
  end
  for _, who in ipairs(redis.call('ZRANGEBYSCORE', book.ends, '-inf', '+inf')) do
    if not get(book, 'incarnations', who) then put(book, 'incarnations', who, false) end
  end
  local wrong = 0
  for path, was in pairs(before) do
    local is = book.budgets[path]
    local same = is.holds == was.holds and held(is) == held(was) and is.unmet == was.unmet and is.lacking == was.lacking
    if is.closing == 1 and is.holds == 0 then
      put(book, 'budgets', path, false)
      same = false
    end
    if not same then wrong = wrong + 1 end
  end
  return wrong
end

-- Nothing is granted until all nodes have said what they hold.
local function mend(book, operates)
  if not is_damaged(book, operates) then return end
  local wrong = recount(book)
  book.learning = math.max(book.learning, book.time + book.ttl + book.grace)
  tell(book, '', 'damaged', whole(wrong))
end

-- What operators do.

local change = {}

function change.set(book, who, path, limit, minimum)
  local level = above(path)
  if level then
    local budget = get(book, 'budgets', level)
    if not budget then return { 'no-budget', level } end
    if budget.closing == 1 then return { 'closing', level } end
  end
  local budget = get(book, 'budgets', path)
  if not budget and limit == '' then return { 'no-limit', path } end
  local was = budget and { limit = budget.limit, minimum = budget.minimum, closing = budget.closing }
  budget = budget or blank(BUDGET)
  if limit ~= '' then budget.limit = number(limit) end
  if minimum ~= '' then budget.minimum = number(minimum) end
  budget.closing = 0
  put(book, 'budgets', path, budget)
  if budget.holds > 0 then nudge(book, path) end
  if not was or was.closing == 1 or was.limit ~= budget.limit or was.minimum ~= budget.minimum then
    tell(book, who, 'set', path, was and whole(was.limit) or '', whole(budget.limit), was and whole(was.minimum) or '',
      whole(budget.minimum))
  end
end

function change.delete(book, who, path)
  local budget = get(book, 'budgets', path)
  if not budget then return { 'no-budget', path } end
  for _, other in ipairs(redis.call('HKEYS', book.keys.budgets)) do
    local there = book.budgets[other] ~= false
    if there and string.sub(other, 1, #path + 1) == path .. '/' then return { 'below', path } end
  end
  if budget.holds == 0 then
    put(book, 'budgets', path, false)
  else
    budget.closing = 1
    put(book, 'budgets', path, budget)
    nudge(book, path)
  end
  tell(book, who, 'deleted', path)
end

function change.terms(book, who, ttl, grace)
  if ttl ~= '' then redis.call('HSET', book.settings, 'ttl', whole(number(ttl))) end
  if grace ~= '' then redis.call('HSET', book.settings, 'grace', whole(number(grace))) end
  local to_ttl, to_grace = ttl ~= '' and number(ttl) or book.ttl, grace ~= '' and number(grace) or book.grace
  if to_ttl ~= book.ttl or to_grace ~= book.grace then
    tell(book, who, 'terms', whole(book.ttl), whole(to_ttl), whole(book.grace), whole(to_grace))
  end
end

function change.repair(book, who)
  tell(book, who, 'repaired', whole(recount(book)))
end

function change.drain(book, who, name, on)
  local node = get(book, 'nodes', name) or { current = NOBODY, draining = false, starts = 0, former = {} }
  local changes = node.draining ~= (on == '1')
  node.draining = on == '1'
  put_node(book, name, node)
  if changes then tell(book, who, 'drained', name, on) end
  for _, start in ipairs(redis.call('HKEYS', book.keys.incarnations)) do
    if name_of(start) == name then
      for _, field in ipairs(holds_of(book, start)) do
        if get(book, 'holds', field) then nudge(book, path_of(field)) end
      end
    end
  end
end

-- A whole book, flat: each kind of row is an array.

local function rows(key, names)
  local flat = {}
  local all = redis.call('HGETALL', key)
  for at = 1, #all, 2 do
    table.insert(flat, all[at])
    local row = unpacked(names, all[at + 1], key, all[at])
    for _, name in ipairs(names) do table.insert(flat, row[name]) end
  end
  return flat
end

local function view(book)
  return {
    book.now, book.time, book.ttl, book.grace, less(book.learning, book.time), rows(book.keys.budgets, BUDGET), redis.call('HGETALL', book.keys.nodes),
    rows(book.keys.incarnations, INCARNATION), rows(book.keys.holds, HOLD), redis.call('LRANGE', book.events, 0, -1),
    redis.call('HGETALL', book.refusals),
  }
end

-- The functions.

local function register(name, body)
  redis.register_function('ledgerline_fleet_v1_' .. name, function(keys, args)
    if args[1] ~= REVISION then
      return redis.error_reply('LEDGERLINE the function library has revision ' .. REVISION .. ', and this client ' .. tostring(args[1]))
    end
    if #keys ~= 10 then return redis.error_reply('LEDGERLINE a book has ten keys') end
    return body(open(keys), args)
  end)
end

register('sync', function(book, args)
  mend(book)
  local reply = apply(book, parse(args))
  close(book)
  return reply
end)

register('administer', function(book, args)
  mend(book, true)
  expire(book)
  local at, who = 2, ''
  if args[2] == 'by' then at, who = 4, args[3] end
  local rejected = change[args[at]](book, who, args[at + 1], args[at + 2], args[at + 3])
  close(book)
  return rejected or { 'done' }
end)

register('view', function(book)
  expire(book)
  close(book, true)
  return view(book)
end)
