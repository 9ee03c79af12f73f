
-- `reserve`, `preview` (only computes the answer), `restore` (an earlier reservation, whatever the limits say now) and
-- `charge`
if op == 'charge' then
  local list, own = accounts(5)
  local is_charged = mark_of('u' .. id) or redis.call('EXISTS', p .. ':u:' .. id) == 1 -- the key of older releases
  if is_charged then return {0, count()} end
  add(keys_of(list), 'spent', split(list, ARGV[3], own))
  mark('u' .. id, '')
  commit(list)
  journal('charge', 0, keys_of(list))
  return {1, counted}
end

-- reserve: decision, phase, owner, memo_ms, accounts…, then offers: name, amount, amount needed, …, then the number of
-- known decisions of a person, the remembered epoch (`*`: any), an epoch for a ledger that has none, the number of
-- changes that this writer knows of, the writer
local remembered, told, decided = ARGV[#ARGV - 3], '', '0'
if op ~= 'restore' and remembered ~= '*' then
  local epoch = redis.call('HMGET', ekey, 'id', 'lost', 'w:' .. writer, 'decided')
  local trouble = epoch[2] and 'lost' or remembered ~= '' and epoch[1] ~= remembered and 'another'
    -- A writer that does not know of a person's decision would take new reservations for old ones.
    or remembered ~= '' and number(epoch[4]) > number(ARGV[#ARGV - 4]) and 'another'
    or number(epoch[3]) < number(ARGV[#ARGV - 1]) and 'behind'
  if trouble then return {trouble, '', '0', '', '0', '', '', '0', ''} end
  local fresh = op == 'reserve' and ARGV[#ARGV - 2] or ''
  if not epoch[1] and fresh ~= '' then redis.call('HSET', ekey, 'id', fresh, 'since', whole(now)) end
  if remembered == '' then told, decided = epoch[1] or fresh, epoch[4] or '0' end
end
local function packed(own) return next(own) and cmsgpack.pack(own) or '' end
-- A reservation that comes late comes within the time that a denial is remembered.
local r, phase = known(ARGV[4], op ~= 'restore' and number(ARGV[5]) or nil), number(ARGV[3])
local over = r.state and r.state ~= 'reserved' and r.state ~= 'denied'
if r.state and (over or is_foreign(r, ARGV[4]) or phase < number(r.phase)) then
  return {'closed', '', '0', '', '0', '', told, decided, ''}
end
if r.state and phase == number(r.phase) then
  if op == 'reserve' and r.status == 'reserved' then counted = count() end
  return {r.status, r.name, r.answered, r.short, r.left, counted, told, decided, packed(r.status == 'reserved' and own_of(r) or {})}
end
local list, owns, _, offers, may_exceed = accounts(6)
local held, before = {}, {}
if r.state == 'reserved' then held, before = places(r), held_by(r) end
local where = keys_of(list)
add(held, 'reserved', 0)
add(where, 'reserved', 0)
-- Return whether every account can hold an offer, but those whose limit is not to count; the account that is shortest
-- of room, and the room that it has.
local function fits(i, own, uncounted)
  local tight, least, left = '', nil, 0
  for _, one in ipairs(list) do
    local limit, has, mine = number(one.limit), account(one.key), own[one.bare]
    if limit >= 0 and mine ~= 0 and not uncounted[one.at_limit] then
      local free = limit - number(has.spent) - number(has.reserved) + (before[one.key] or 0)
      local spare = free - number(mine or ARGV[i + 2])
      if least == nil or spare < least then tight, least, left = one.key, spare, free end
    end
  end
  return least == nil or least >= 0, tight, math.max(0, left)
end
-- Within all limits; else beyond those of which a person is asked; else as soon as those at which calls pause have room.
local status, name, amount, short, left, chosen = 'denied', '', 0, '', 0, {}
local has, uncounted, passed = {}, {}, {}
for _, one in ipairs(list) do has[one.at_limit] = true end
for _, at_limit in ipairs({'', 'ask', 'pause'}) do
  if status == 'denied' and (at_limit == '' or has[at_limit]) then
    passed = {}
    for kind in pairs(uncounted) do passed[kind] = true end
    if at_limit ~= '' then uncounted[at_limit] = true end
    for i = offers, #ARGV - 5, 3 do
      local own = owns[(i - offers) / 3 + 1] or {}
      local fine, tight, free = fits(i, own, uncounted)
      if at_limit == 'ask' and may_exceed[(i - offers) / 3 + 1] == false then fine = false end
      if fine then
        status, name, amount, chosen = at_limit == 'pause' and 'paused' or 'reserved', ARGV[i], number(ARGV[i + 1]), own
        short, left = '', 0
        if at_limit ~= '' then _, short, left = fits(i, own, passed) end
        break
      end
      short, left = tight, free
    end
  end
end
if op == 'restore' and status ~= 'reserved' then
  status, name, amount, short, left, chosen = 'reserved', ARGV[offers], number(ARGV[offers + 1]), '', 0, owns[1] or {}
end
local amounts, own = split(list, amount, chosen), {}
for _, one in ipairs(list) do own[one.key] = chosen[one.bare] and amounts[one.key] end
if op == 'preview' or status == 'paused' then
  return {status, name, whole(amount), short, whole(left), '', told, decided, packed(status == 'reserved' and own or {})}
end
if status == 'reserved' then
  add(held, 'reserved', before, -1)
  add(where, 'reserved', amounts)
  redis.call('ZADD', open, 'NX', r.since or whole(now), id)
end
commit(list)
local words = {'phase', phase, 'status', status, 'name', name, 'answered', whole(amount), 'short', short, 'left', whole(left)}
local function put(field, value) words[#words + 1], words[#words + 2] = field, value end
if r.state == nil then
  put('owner', ARGV[4])
  put('since', whole(now))
end
if status == 'reserved' or #held == 0 then
  put('n', #where)
  for j, key in ipairs(where) do
    put('k' .. j, key)
    if own[key] then
      put('m' .. j, whole(own[key]))
    elseif r['m' .. j] then
      redis.call('HDEL', rkey, 'm' .. j)
    end
  end
end
if status == 'reserved' then put('amount', whole(amount)) end
if status == 'reserved' or r.state == nil then put('state', status) end
redis.call('HSET', rkey, unpack(words))
if status == 'reserved' then
  if r.state then redis.call('PERSIST', rkey) end
elseif r.state ~= 'reserved' then
  redis.call('PEXPIRE', rkey, ARGV[5])
end
return {status, name, whole(amount), short, whole(left), counted, told, decided, packed(own)}
