
-- Who was refused. A row's field is its place: the higher, the later it was noted. A row that is noted again gets another one.

local LIMIT, LEASE, DELETED, DRAINED = 0, 1, 2, 3

local function stands_in_the_way(book, said, idle_there, grows)
  local budget = get(book, 'budgets', said.budget)
  if not budget or budget.closing == 1 then return DELETED end
  if not grows then return DRAINED end
  return less(said.units, idle_there) <= less(budget.limit, held(budget)) and LEASE or LIMIT
end

local function read_refusals(book)
  local rows = {}
  local all = redis.call('HGETALL', book.refusals)
  for at = 1, #all, 2 do
    local told, since, last, full, units, count, who, budget, group =
      string.match(all[at + 1], '^(%d+)%z(%d+)%z(%d+)%z(%d)%z(%d+)%z(%d+)%z(%Z+%z%x+)%z(%Z+)%z(%Z+)$')
    if not told then error('a row of another format') end
    table.insert(rows, {
      place = tonumber(all[at]), number = tonumber(told), since = tonumber(since), at = tonumber(last), full = tonumber(full),
      units = tonumber(units), count = tonumber(count), who = who, budget = budget, group = group, kept = true,
    })
  end
  table.sort(rows, function(a, b) return a.place < b.place end)
  return rows
end

local function fold(rows, at, who, full, said)
  local row
  for place = #rows, 1, -1 do
    local other = rows[place]
    local same = other.who == who and other.budget == said.budget and other.group == said.group
    local alike = other.full == full or (other.full <= LEASE and full <= LEASE)
    if same and alike and at <= other.at + EPISODE then
      row = table.remove(rows, place)
      break
    end
  end
  if not row then
    if #rows == REFUSALS then table.remove(rows, 1) end
    row = { since = at, at = at, units = 0, count = 0, who = who, budget = said.budget, group = said.group }
  end
  row.number, row.full, row.kept = said.number, full, false
  row.since, row.at = math.min(row.since, at), math.max(row.at, at)
  row.units, row.count = math.max(row.units, said.units), math.min(row.count + said.count, MAX_UNITS)
  table.insert(rows, row)
end

local function note(book, who, sync, grows)
  if #sync.refusals == 0 then return end
  local rows = read_refusals(book)
  local places, stays, told, last = {}, {}, 0, 0
  for _, row in ipairs(rows) do
    table.insert(places, row.place)
    last = row.place
    if row.who == who then told = math.max(told, row.number) end
  end
  for _, said in ipairs(sync.refusals) do
    if said.number > told then
      local hold = get(book, 'holds', who .. '\0' .. said.budget)
      fold(rows, less(book.now, said.age), who, stands_in_the_way(book, said, hold and idle(hold) or 0, grows), said)
    end
  end
  for _, row in ipairs(rows) do
    if row.kept then
      stays[row.place] = true
    else
      last = last + 1
      row.place = last
      table.insert(book.noted, row)
    end
  end
  for _, place in ipairs(places) do
    if not stays[place] then table.insert(book.faded, whole(place)) end
  end
end
