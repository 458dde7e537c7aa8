#!lua name=ledgerline_fleet_v1

-- The book of one organisation, as src/book does it in Rust; a test holds the two together. Each call reads what it needs,
-- computes, and writes at its end, so an error in between leaves the book as it was.
--
-- KEYS: settings, budgets, nodes, incarnations, holds, index, ends, events, refusals, nudges (a channel). All have one hash tag.
-- ARGV: the revision of the functions, then what the function takes.
--
-- An incarnation is 16 hexadecimal digits, and "who" is its node's name, a zero byte, these digits. A hold's field is "who", a
-- zero byte, the path; the index has the same fields in order, so that the holds of one incarnation are a range of it.

local REVISION = '4'
local MAX_UNITS = 9007199254740992 -- 2^53: doubles are exact up to here
local FORMER = 8
local EVENTS = 64
local REFUSALS, EPISODE = 64, 60000
local TTL, GRACE = 10000, 5000
local NOBODY = '0000000000000000'
local CHUNK = 1000 -- what fits on Lua's stack

local BUDGET = { 'limit', 'minimum', 'closing', 'holds', 'leased', 'excess', 'unmet', 'idle', 'lacking', 'refused', 'waiting',
  'sharers', 'hungry', 'hungry_leased', 'entitled', 'head_since', 'head_lacks', 'head_large' }
local HOLD = { 'lease', 'used', 'want', 'refused', 'sequence', 'excess', 'unmet', 'lacking', 'waiting', 'entitled', 'since', 'large' }
local INCARNATION = { 'sequence', 'lost', 'at', 'ends', 'freed', 'grace', 'left' }

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Rows.

local function blank(names)
  local row = {}
  for _, name in ipairs(names) do row[name] = 0 end
  return row
end

local function packed(names, row)
  local numbers = {}
  for at, name in ipairs(names) do numbers[at] = row[name] end
  return struct.pack('<' .. string.rep('d', #names), unpack(numbers))
end

-- What lies in a field, and where: an operator is told which.
local function misread(key, field)
  error('a row of another format: field ' .. tostring(field) .. ' of ' .. tostring(key))
end

local function unpacked(names, bytes, key, field)
  if #bytes ~= 8 * #names then misread(key, field) end
  local numbers = { struct.unpack('<' .. string.rep('d', #names), bytes) }
  local row = {}
  for at, name in ipairs(names) do row[name] = numbers[at] end
  return row
end

local function less(a, b) return math.max(a - b, 0) end

local function whole(n) return string.format('%.0f', n) end

local function number(text)
  local n = tonumber(text)
  if not n or n < 0 or n > MAX_UNITS or n ~= math.floor(n) then error('no number of units: ' .. tostring(text)) end
  return n
end

-- A book during one call: rows as they are read, and which of them to write. A row that is gone is false.

-- The book's own time, which never goes back: src/book/time.rs has why.
local function time_of(book, latest, ahead)
  local shown = book.now + ahead
  if shown >= latest then return shown, ahead end
  if latest - shown <= book.ttl + book.grace then return latest, ahead end
  return latest, latest - book.now
end

local function open(keys)
  local book = {
    settings = keys[1], keys = { budgets = keys[2], nodes = keys[3], incarnations = keys[4], holds = keys[5] },
    index = keys[6], ends = keys[7], events = keys[8], refusals = keys[9], channel = keys[10],
    budgets = {}, nodes = {}, incarnations = {}, holds = {},
    changed = { budgets = {}, nodes = {}, incarnations = {}, holds = {} },
    -- The store's clock is what operators see; leases end by the book's time.
    told = {}, noted = {}, faded = {}, nudged = {}, now = clock(),
  }
  local settings = redis.call('HMGET', book.settings, 'ttl', 'grace', 'latest', 'ahead', 'born', 'learning')
  book.ttl = tonumber(settings[1]) or TTL
  book.grace = tonumber(settings[2]) or GRACE
  book.time, book.ahead = time_of(book, tonumber(settings[3]) or 0, tonumber(settings[4]) or 0)
  book.is_new, book.born, book.learning = not settings[5], tonumber(settings[5]) or book.time, tonumber(settings[6]) or 0
  return book
end

local function node_row(text, key, field)
  local current, draining, starts, former = string.match(text, '^(%x+) (%d) (%d+) ?(.*)$')
  if not current then misread(key, field) end
  local row = { current = current, draining = draining == '1', starts = tonumber(starts), former = {} }
  for earlier in string.gmatch(former, '%x+') do table.insert(row.former, earlier) end
  return row
end

local read = {
  budgets = function(bytes, key, field) return unpacked(BUDGET, bytes, key, field) end,
  nodes = node_row,
  incarnations = function(bytes, key, field) return unpacked(INCARNATION, bytes, key, field) end,
  holds = function(bytes, key, field) return unpacked(HOLD, bytes, key, field) end,
}

local written = {
  budgets = function(row) return packed(BUDGET, row) end,
  nodes = function(row)
    local former = table.concat(row.former, ' ')
    return row.current .. ' ' .. (row.draining and '1' or '0') .. ' ' .. whole(row.starts) .. ' ' .. former
  end,
  incarnations = function(row) return packed(INCARNATION, row) end,
  holds = function(row) return packed(HOLD, row) end,
}

local function get(book, kind, field)
  local row = book[kind][field]
  if row == nil then
    local bytes = redis.call('HGET', book.keys[kind], field)
    row = bytes and read[kind](bytes, book.keys[kind], field) or false
    book[kind][field] = row
  end
  return row
end

local function fetch(book, kind, fields)
  for from = 1, #fields, CHUNK do
    local to = math.min(from + CHUNK - 1, #fields)
    local rows = redis.call('HMGET', book.keys[kind], unpack(fields, from, to))
    for at, bytes in ipairs(rows) do
      local field = fields[from + at - 1]
      if book[kind][field] == nil then book[kind][field] = bytes and read[kind](bytes, book.keys[kind], field) or false end
    end
  end
end

local function put(book, kind, field, row)
  book[kind][field] = row
  book.changed[kind][field] = true
end

local function holds_of(book, who)
  local fields = redis.call('ZRANGEBYLEX', book.index, '[' .. who .. '\0', '(' .. who .. '\1')
  fetch(book, 'holds', fields)
  return fields
end

local function path_of(field) return string.match(field, '^%Z+%z%x+%z(.*)$') end

local function name_of(who) return string.match(who, '^(%Z+)%z') end

local function above(path) return string.match(path, '^(/.+)/[^/]*$') end

local function tell(book, ...) table.insert(book.told, table.concat({ whole(book.now), ... }, '\0')) end

local function nudge(book, path) book.nudged[path] = true end

-- What a call may not do is found before it writes, so that it does not stop half way.
local function permitted(commands)
  for _, command in ipairs(commands) do
    if not redis.acl_check_cmd(unpack(command)) then error('NOPERM this user may not ' .. command[1] .. ' ' .. command[2]) end
  end
end

local function each_chunk(list, call)
  for from = 1, #list, CHUNK do call(unpack(list, from, math.min(from + CHUNK - 1, #list))) end
end

local function refusal_text(row)
  local numbers = { row.number, row.since, row.at, row.full, row.units, row.count }
  for at, value in ipairs(numbers) do numbers[at] = whole(value) end
  return table.concat(numbers, '\0') .. '\0' .. table.concat({ row.who, row.budget, row.group }, '\0')
end

-- A call that only looks keeps the time only if something has ended by it.
local function close(book, looks)
  local commands, writes = {}, {}
  local function add(command, key, list)
    if #list == 0 then return end
    table.insert(commands, { command, key, list[1], list[2] })
    table.insert(writes, { command, key, list })
  end
  local indexed, unindexed, renewed, ended = {}, {}, {}, {}
  for kind, fields in pairs(book.changed) do
    local set, gone = {}, {}
    for field in pairs(fields) do
      local row = book[kind][field]
      if row then
        table.insert(set, field)
        table.insert(set, written[kind](row))
        if kind == 'holds' and row.fresh then table.insert(indexed, 0) table.insert(indexed, field) end
        if kind == 'incarnations' then table.insert(renewed, row.freed) table.insert(renewed, field) end
      else
        table.insert(gone, field)
        if kind == 'holds' then table.insert(unindexed, field) end
        if kind == 'incarnations' then table.insert(ended, field) end
      end
    end
    add('HSET', book.keys[kind], set)
    add('HDEL', book.keys[kind], gone)
  end
  add('ZADD', book.index, indexed)
  add('ZREM', book.index, unindexed)
  add('ZADD', book.ends, renewed)
  add('ZREM', book.ends, ended)
  local noted = {}
  for _, row in ipairs(book.noted) do
    table.insert(noted, whole(row.place))
    table.insert(noted, refusal_text(row))
  end
  add('HSET', book.refusals, noted)
  add('HDEL', book.refusals, book.faded)
  local told = {}
  for at = math.max(1, #book.told - EVENTS + 1), #book.told do table.insert(told, book.told[at]) end
  add('RPUSH', book.events, told)
  if #told > 0 then table.insert(commands, { 'LTRIM', book.events, -EVENTS, -1 }) end
  if next(book.nudged) then table.insert(commands, { 'PUBLISH', book.channel, '' }) end
  if #writes > 0 or not looks then 
    add('HSET', book.settings, {
      'latest', whole(book.time), 'ahead', whole(book.ahead), 'born', whole(book.born), 'learning', whole(book.learning),
    })
  end
  permitted(commands)
  for _, write in ipairs(writes) do
    each_chunk(write[3], function(...) redis.call(write[1], write[2], ...) end)
  end
  if #told > 0 then redis.call('LTRIM', book.events, -EVENTS, -1) end
  for path in pairs(book.nudged) do redis.call('PUBLISH', book.channel, path) end
end
