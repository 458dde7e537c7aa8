
-- One message from a node.

local SYNCED, LATE, FENCED = 0, 1, 2
local OPEN, OVER, CLOSING, UNKNOWN, DRAINED, LEARNING = 0, 1, 2, 3, 4, 5

local function answer(reply, budget, hold, said, grows, learns, grown)
  local by = over(budget)
  local state = budget.closing == 1 and CLOSING or not grows and DRAINED or by > 0 and OVER or learns and LEARNING or OPEN
  local all = budget.closing == 1 or not grows
  table.insert(reply, hold.lease)
  table.insert(reply, all and hold.lease or asked(budget, hold))
  table.insert(reply, wanted(budget, hold))
  table.insert(reply, due(budget, hold, said, grown))
  table.insert(reply, budget.limit)
  table.insert(reply, budget.leased)
  table.insert(reply, state)
  table.insert(reply, by)
end

local function unknown(reply)
  for _, value in ipairs({ 0, 0, 0, 0, 0, 0, UNKNOWN, 0 }) do table.insert(reply, value) end
end

-- Takes over what the node says of one budget, and grants from what is left.
local function hear(book, who, sync, incarnation, said, most)
  local budget = get(book, 'budgets', said.path)
  if not budget then return false end
  local field = who .. '\0' .. said.path
  local hold = get(book, 'holds', field)
  if not hold then
    hold = blank(HOLD)
    hold.fresh = true
    budget.holds = budget.holds + 1
  end
  local one = { budget = budget, field = field, hold = hold, most = most, lease_before = hold.lease }
  one.unmet_before, one.waiting_before = hold.unmet, hold.waiting
  add_to_sums(budget, hold, -1)
  budget.refused = math.min(budget.refused + less(said.refused, hold.refused), MAX_UNITS)

  local adopts = said.lease > hold.lease and hold.sequence < incarnation.lost
  local believed = adopts and math.min(said.lease, MAX_UNITS - held(budget)) or math.min(said.lease, hold.lease)
  hold.used, hold.want, hold.sequence = said.used, said.want, sync.sequence
  hold.refused = math.max(hold.refused, said.refused)
  set_lease(hold, math.min(believed, said.want), budget)
  one.base, one.adopted = hold.lease, less(hold.lease, one.lease_before)

  if sync.grows and not sync.learns and budget.closing == 0 and held(budget) + one.base + hold.excess <= budget.limit then
    local need = less(math.min(said.want, most), one.base)
    local urgent = less(math.min(said.urgent, most), one.base)
    local next_one = less(math.min(said.next, most), one.base)
    local entitled, since = entitle(budget, hold, math.min(urgent, need), said, book.time, book.ttl)
    set_lease(hold, one.base + grant(budget, hold, entitled, since, need, urgent, next_one), budget)
  end
  return one
end

-- Takes back what the levels below cannot use, and puts the hold into the sums.
local function settle(book, sync, said, one, below)
  local budget, hold, base = one.budget, one.hold, one.base
  local useful = math.max(math.min(math.max(said.least + below.more, below.lease), said.want), base)
  if hold.lease > useful then set_lease(hold, useful, budget) end
  local opens = sync.grows and budget.closing == 0
  local wish = opens and useful - hold.lease or 0
  local left = less(budget.limit, held(budget) + hold.lease + hold.excess)
  -- What the level above would allow, and what this one has no room for, whatever the one above does.
  local within = math.min(less(math.min(useful, one.most), hold.lease), wish)
  local unmet = math.max(within, less(wish, left))
  local lacking = opens and less(budget.minimum, hold.lease) or 0
  hold.unmet = math.min(unmet, MAX_UNITS - budget.unmet)
  hold.waiting = math.min(less(said.urgent, hold.lease), hold.unmet)
  hold.lacking = math.min(lacking, MAX_UNITS - budget.lacking)
  hold.entitled, hold.since, hold.large = entitle(budget, hold, hold.waiting, said, book.time, book.ttl)
  local grown = hold.lease - base
  -- What it can use beyond that, were there more above.
  local beyond = within == 0 and math.min(wish, left) or 0
  local mine = { more = grown + beyond, lease = grown > 0 and hold.lease or 0 }

  local lacks, waits = hold.unmet > one.unmet_before, hold.waiting > one.waiting_before
  local frees = hold.lease < one.lease_before and budget.unmet > 0
  local idle_at_others = budget.idle > 0
  add_to_sums(budget, hold, 1)
  local by = over(budget)
  if frees or (lacks and idle_at_others) or (one.adopted > 0 and by > 0) then
    nudge(book, said.path)
  elseif waits then
    nudge(book, '?' .. said.path)
  end
  one.granted = {}
  answer(one.granted, budget, hold, said, sync.grows, sync.learns, grown > 0)
  put(book, 'budgets', said.path, budget)
  put(book, 'holds', one.field, hold)
  if is_blank(hold, budget.closing) then release(book, one.field, hold) end
  if one.adopted > 0 then tell(book, sync.node, 'adopted', said.path, whole(one.adopted), whole(by)) end
  return mine
end

local function repeated(book, who, sync, reply, at_time)
  for _, said in ipairs(sync.lines) do
    local budget = get(book, 'budgets', said.path)
    local hold = who and get(book, 'holds', who .. '\0' .. said.path) or blank(HOLD)
    if budget then answer(reply, budget, hold, said, sync.grows, at_time < book.learning, false) else unknown(reply) end
  end
  return reply
end

local function parse(args)
  local sync = {
    node = args[2], incarnation = args[3], sequence = number(args[4]), taken = number(args[5]), lines = {}, refusals = {},
  }
  sync.until_time, sync.left = number(args[6]), number(args[7])
  sync.ended, sync.bye = args[8] == 'ended', args[8] == 'bye'
  local lines_end = 9 + 9 * number(args[9])
  if not string.match(sync.incarnation, '^%x+$') or #sync.incarnation ~= 16 or lines_end > #args or (#args - lines_end) % 6 ~= 0 then
    error('no message of this protocol')
  end
  for at = lines_end + 1, #args, 6 do
    table.insert(sync.refusals, {
      number = number(args[at]), budget = args[at + 1], group = args[at + 2], units = number(args[at + 3]),
      count = number(args[at + 4]), age = number(args[at + 5]),
    })
  end
  for at = 10, lines_end, 9 do
    table.insert(sync.lines, {
      path = args[at], lease = number(args[at + 1]), used = number(args[at + 2]), want = number(args[at + 3]),
      least = number(args[at + 4]), urgent = number(args[at + 5]), next = number(args[at + 6]), waited = number(args[at + 7]),
      refused = number(args[at + 8]),
    })
  end
  return sync
end

local function leave(book, who, sync)
  local known = get(book, 'incarnations', who)
  if known then
    if sync.sequence < known.sequence then return { LATE, known.sequence } end
    local node = get(book, 'nodes', sync.node)
    note(book, who, sync, node and not node.draining)
    known.sequence = sync.sequence
    known.left = 1
    put(book, 'incarnations', who, known)
    release_all(book, who)
  end
  sync.grows = false
  return repeated(book, nil, sync, { SYNCED, sync.sequence, book.time, 0, 0 }, book.time)
end

local function next_message(book, who, sync, incarnation)
  local known = incarnation.sequence
  renew(book, incarnation, sync.left)
  incarnation.sequence = sync.sequence
  incarnation.left = 0
  if sync.ended then
    clear(book, who, incarnation)
  elseif (sync.taken > known or book.time < book.learning) and book.time < sync.until_time then
    incarnation.lost = sync.sequence
    if known == 0 and sync.taken > 0 and book.time < book.born + book.ttl + book.grace then
      -- Nodes have leases of a book that was here before this one.
      book.learning = math.max(book.learning, book.time + math.max(sync.left, book.ttl + book.grace))
    end
  end
  sync.learns = book.time < book.learning
  put(book, 'incarnations', who, incarnation)
  local paths, fields = {}, {}
  for at, said in ipairs(sync.lines) do
    paths[at], fields[at] = said.path, who .. '\0' .. said.path
  end
  fetch(book, 'budgets', paths)
  fetch(book, 'holds', fields)
  local reply = { SYNCED, sync.sequence, book.time, book.ttl, book.grace }
  local leases, heard, below = {}, {}, {}
  for at, said in ipairs(sync.lines) do
    local level = above(said.path)
    local most = level and (leases[level] or 0) or MAX_UNITS
    heard[at] = hear(book, who, sync, incarnation, said, most)
    leases[said.path] = heard[at] and heard[at].hold.lease or 0
  end
  -- Backwards: each level after those below it.
  for at = #sync.lines, 1, -1 do
    local said, one = sync.lines[at], heard[at]
    if one then
      local mine = settle(book, sync, said, one, below[said.path] or { more = 0, lease = 0 })
      local level = above(said.path)
      if level then
        local all = below[level] or { more = 0, lease = 0 }
        below[level] = { more = math.min(all.more + mine.more, MAX_UNITS), lease = math.max(all.lease, mine.lease) }
      end
    end
  end
  for _, one in ipairs(heard) do
    if one then
      for _, value in ipairs(one.granted) do table.insert(reply, value) end
    else
      unknown(reply)
    end
  end
  note(book, who, sync, sync.grows)
  return reply
end

local function apply(book, sync)
  local who = sync.node .. '\0' .. sync.incarnation
  expire(book)
  if sync.bye then return leave(book, who, sync) end
  if not has_name(book, sync.node, sync.incarnation, sync) then return { FENCED } end
  local node = get(book, 'nodes', sync.node)
  sync.grows = not node.draining
  local incarnation = get(book, 'incarnations', who)
  if not incarnation then
    incarnation = blank(INCARNATION)
    node.starts = node.starts + 1
    put(book, 'nodes', sync.node, node)
  end
  if sync.sequence < incarnation.sequence then return { LATE, incarnation.sequence } end
  if sync.sequence == incarnation.sequence then
    return repeated(book, who, sync, { SYNCED, sync.sequence, incarnation.at, incarnation.ends - incarnation.at, incarnation.grace },
      incarnation.at)
  end
  return next_message(book, who, sync, incarnation)
end
