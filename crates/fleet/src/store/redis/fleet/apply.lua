
-- One message from a node.

local SYNCED, LATE, FENCED = 0, 1, 2
local OPEN, OVER, CLOSING, UNKNOWN = 0, 1, 2, 3

local function answer(reply, budget, hold, grows)
  local by = over(budget)
  local state = budget.closing == 1 and CLOSING or by > 0 and OVER or OPEN
  local all = budget.closing == 1 or not grows
  table.insert(reply, hold.lease)
  table.insert(reply, all and hold.lease or asked(budget, hold))
  table.insert(reply, state)
  table.insert(reply, by)
end

local function unknown(reply)
  for _, value in ipairs({ 0, 0, UNKNOWN, 0 }) do table.insert(reply, value) end
end

local function line(book, who, sync, incarnation, said, most, reply)
  local budget = get(book, 'budgets', said.path)
  if not budget then
    unknown(reply)
    return 0
  end
  local field = who .. '\0' .. said.path
  local hold = get(book, 'holds', field)
  if not hold then
    hold = blank(HOLD)
    hold.fresh = true
    budget.holds = budget.holds + 1
  end
  local lease_before, unmet_before = hold.lease, hold.unmet
  add_to_sums(budget, hold, -1)
  budget.refused = math.min(budget.refused + less(said.refused, hold.refused), MAX_UNITS)

  local adopts = said.lease > hold.lease and hold.sequence < incarnation.lost
  local believed = adopts and math.min(said.lease, MAX_UNITS - held(budget)) or math.min(said.lease, hold.lease)
  hold.used, hold.want, hold.sequence = said.used, said.want, sync.sequence
  hold.refused = math.max(hold.refused, said.refused)
  set_lease(hold, math.min(believed, said.want), budget)
  local adopted = less(hold.lease, lease_before)

  local opens = sync.grows and budget.closing == 0
  local need = opens and less(math.min(said.want, most), hold.lease) or 0
  if held(budget) + hold.lease + hold.excess <= budget.limit then
    set_lease(hold, hold.lease + grant(budget, hold, need), budget)
  end
  local unmet = opens and less(math.min(said.want, most), hold.lease) or 0
  local lacking = opens and less(budget.minimum, hold.lease) or 0
  hold.unmet = math.min(unmet, MAX_UNITS - budget.unmet)
  hold.lacking = math.min(lacking, MAX_UNITS - budget.lacking)

  local wanted_by_others, idle_at_others = budget.unmet > 0, budget.idle > 0
  add_to_sums(budget, hold, 1)
  answer(reply, budget, hold, sync.grows)
  local by = over(budget)
  if (hold.unmet > unmet_before and idle_at_others) or (hold.lease < lease_before and wanted_by_others)
    or (adopted > 0 and by > 0) then
    nudge(book, said.path)
  end
  local lease = hold.lease
  put(book, 'budgets', said.path, budget)
  put(book, 'holds', field, hold)
  if is_blank(hold, budget.closing) then release(book, field, hold) end
  if adopted > 0 then tell(book, sync.node, 'adopted', said.path, whole(adopted), whole(by)) end
  return lease
end

local function repeated(book, who, sync, reply)
  for _, said in ipairs(sync.lines) do
    local budget = get(book, 'budgets', said.path)
    local hold = who and get(book, 'holds', who .. '\0' .. said.path) or blank(HOLD)
    if budget then answer(reply, budget, hold, sync.grows) else unknown(reply) end
  end
  return reply
end

local function parse(args)
  local sync = {
    node = args[2], incarnation = args[3], sequence = number(args[4]), taken = number(args[5]), lines = {}, refusals = {},
  }
  sync.until_time = number(args[6])
  sync.ended, sync.bye = args[7] == 'ended', args[7] == 'bye'
  local lines_end = 8 + 5 * number(args[8])
  if not string.match(sync.incarnation, '^%x+$') or #sync.incarnation ~= 16 or lines_end > #args or (#args - lines_end) % 6 ~= 0 then
    error('no message of this protocol')
  end
  for at = lines_end + 1, #args, 6 do
    table.insert(sync.refusals, {
      number = number(args[at]), budget = args[at + 1], group = args[at + 2], units = number(args[at + 3]),
      count = number(args[at + 4]), age = number(args[at + 5]),
    })
  end
  for at = 9, lines_end, 5 do
    table.insert(sync.lines, {
      path = args[at], lease = number(args[at + 1]), used = number(args[at + 2]), want = number(args[at + 3]),
      refused = number(args[at + 4]),
    })
  end
  return sync
end

local function leave(book, who, sync)
  local known = get(book, 'incarnations', who)
  if known then
    if sync.sequence < known.sequence then return { LATE, known.sequence } end
    note(book, who, sync)
    known.sequence = sync.sequence
    known.left = 1
    put(book, 'incarnations', who, known)
    release_all(book, who)
  end
  sync.grows = false
  return repeated(book, nil, sync, { SYNCED, sync.sequence, book.now, 0 })
end

local function next_message(book, who, sync, incarnation)
  local known = incarnation.sequence
  renew(book, incarnation)
  incarnation.sequence = sync.sequence
  incarnation.left = 0
  if sync.ended then
    clear(book, who, incarnation)
  elseif sync.taken > known and book.now < sync.until_time + book.grace then
    incarnation.lost = sync.sequence
  end
  put(book, 'incarnations', who, incarnation)
  local paths, fields = {}, {}
  for at, said in ipairs(sync.lines) do
    paths[at], fields[at] = said.path, who .. '\0' .. said.path
  end
  fetch(book, 'budgets', paths)
  fetch(book, 'holds', fields)
  local reply = { SYNCED, sync.sequence, book.now, book.ttl }
  local leases = {}
  for _, said in ipairs(sync.lines) do
    local level = above(said.path)
    local most = level and (leases[level] or 0) or MAX_UNITS
    leases[said.path] = line(book, who, sync, incarnation, said, most, reply)
  end
  note(book, who, sync)
  return reply
end

local function apply(book, sync)
  local who = sync.node .. '\0' .. sync.incarnation
  expire(book)
  if sync.bye then return leave(book, who, sync) end
  if not has_name(book, sync.node, sync.incarnation) then return { FENCED } end
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
    return repeated(book, who, sync, { SYNCED, sync.sequence, incarnation.at, incarnation.ends - incarnation.at })
  end
  return next_message(book, who, sync, incarnation)
end
