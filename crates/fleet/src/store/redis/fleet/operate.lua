
-- What operators do.

local change = {}

function change.set(book, path, limit, minimum)
  local level = above(path)
  if level then
    local budget = get(book, 'budgets', level)
    if not budget then return { 'no-budget', level } end
    if budget.closing == 1 then return { 'closing', level } end
  end
  local budget = get(book, 'budgets', path)
  if not budget and limit == '' then return { 'no-limit', path } end
  budget = budget or blank(BUDGET)
  if limit ~= '' then budget.limit = number(limit) end
  if minimum ~= '' then budget.minimum = number(minimum) end
  budget.closing = 0
  put(book, 'budgets', path, budget)
  if budget.holds > 0 then nudge(book, path) end
end

function change.delete(book, path)
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
end

function change.terms(book, ttl, grace)
  if ttl ~= '' then redis.call('HSET', book.settings, 'ttl', whole(number(ttl))) end
  if grace ~= '' then redis.call('HSET', book.settings, 'grace', whole(number(grace))) end
end

function change.drain(book, name, on)
  local node = get(book, 'nodes', name) or { current = NOBODY, draining = false, starts = 0, former = {} }
  node.draining = on == '1'
  put_node(book, name, node)
  for _, who in ipairs(redis.call('HKEYS', book.keys.incarnations)) do
    if name_of(who) == name then
      for _, field in ipairs(holds_of(book, who)) do
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
    book.now, book.time, book.ttl, book.grace, rows(book.keys.budgets, BUDGET), redis.call('HGETALL', book.keys.nodes),
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
  local reply = apply(book, parse(args))
  close(book)
  return reply
end)

register('administer', function(book, args)
  expire(book)
  local rejected = change[args[2]](book, args[3], args[4], args[5])
  close(book)
  return rejected or { 'done' }
end)

register('view', function(book)
  expire(book)
  close(book, true)
  return view(book)
end)
