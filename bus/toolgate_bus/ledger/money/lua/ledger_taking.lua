
-- `reserve`, `preview` (only computes the answer), `restore` (an earlier reservation, whatever the limits say now) and
-- `charge`
if op == 'charge' then
  rkey = p .. ':u:' .. id
  local amount, list = number(ARGV[3]), accounts(5)
  if redis.call('EXISTS', rkey) == 1 then return {0, count()} end
  add(keys_of(list), 'spent', amount)
  list_them(list)
  touch(list)
  commit()
  redis.call('HSET', rkey, 'state', 'settled')
  redis.call('PEXPIRE', rkey, ARGV[4])
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
  if trouble then return {trouble, '', '0', '', '0', '', '', '0'} end
  local fresh = op == 'reserve' and ARGV[#ARGV - 2] or ''
  if not epoch[1] and fresh ~= '' then redis.call('HSET', ekey, 'id', fresh, 'since', whole(now)) end
  if remembered == '' then told, decided = epoch[1] or fresh, epoch[4] or '0' end
end
local r, phase = known(ARGV[4]), number(ARGV[3])
local over = r.state and r.state ~= 'reserved' and r.state ~= 'denied'
if r.state and (over or is_foreign(r, ARGV[4]) or phase < number(r.phase)) then
  return {'closed', '', '0', '', '0', '', told, decided}
end
if r.state and phase == number(r.phase) then
  if op == 'reserve' and r.status == 'reserved' then counted = count() end
  return {r.status, r.name, r.answered, r.short, r.left, counted, told, decided}
end
local list = accounts(6)
local offers = 6 + 1 + 4 * #list
local held, before = {}, number(r.amount)
local before_at = {}
if r.state == 'reserved' then
  held = places(r)
  for _, key in ipairs(held) do before_at[key] = before end
end
local where = keys_of(list)
add(held, 'reserved', 0)
add(where, 'reserved', 0)
local status, name, amount, short, left = 'denied', '', 0, '', 0
for i = offers, #ARGV - 5, 3 do
  local want, needed, room, tight = number(ARGV[i + 1]), number(ARGV[i + 2]), nil, ''
  for _, one in ipairs(list) do
    local limit, has = number(one.limit), account(one.key)
    if limit >= 0 then
      local free = limit - number(has.spent) - number(has.reserved) + (before_at[one.key] or 0)
      if room == nil or free < room then room, tight = free, one.key end
    end
  end
  if room == nil or needed <= room or op == 'restore' then
    status, name, amount = 'reserved', ARGV[i], want
    break
  end
  short, left = tight, math.max(0, room)
end
if status == 'reserved' then short, left = '', 0 end
if op == 'preview' then return {status, name, whole(amount), short, whole(left), '', told, decided} end
if status == 'reserved' then
  add(held, 'reserved', -before)
  add(where, 'reserved', amount)
  redis.call('ZADD', open, 'NX', r.since or whole(now), id)
end
list_them(list)
touch(list)
commit()
redis.call('HSET', rkey, 'phase', phase, 'status', status, 'name', name, 'answered', whole(amount),
  'short', short, 'left', whole(left))
if r.state == nil then
  redis.call('HSET', rkey, 'state', 'denied', 'owner', ARGV[4], 'since', whole(now))
end
if status == 'reserved' or #held == 0 then
  redis.call('HSET', rkey, 'n', #where)
  for j, key in ipairs(where) do redis.call('HSET', rkey, 'k' .. j, key) end
end
if status == 'reserved' then
  redis.call('HSET', rkey, 'state', 'reserved', 'amount', whole(amount))
  redis.call('PERSIST', rkey)
elseif r.state ~= 'reserved' then
  redis.call('PEXPIRE', rkey, ARGV[5])
end
return {status, name, whole(amount), short, whole(left), counted, told, decided}
