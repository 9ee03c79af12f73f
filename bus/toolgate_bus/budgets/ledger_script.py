"""The ledger's rules as one Lua script, which the server runs atomically (see `ledger` for the rules).

Lua has no way back after its first write, so everything is read, and thereby checked for its type, and
every sum is computed within its bounds, before anything is written; the two lists, which are not read,
are written first. `reserve` and `charge` are refused by a server that is out of memory; what gives money
back or settles is not.

Keys of one namespace, all in one slot (`p` is their prefix):
    p:r:<decision>         hash: state, phase, status, name, amount, short, left, owner, since, exec,
                           n, k1…kn (account keys); a tombstone has no phase
    p:u:<event>            what was charged
    p:a:<key>:<window>     hash: limit, spent, reserved, overruns, orphans
    p:open                 sorted set of decisions that hold money, by server time (ms)
    p:accounts             set of account keys with their windows
    p:astray               hash: how often money was told of that was not reserved, by outcome
"""

from typing import Final

__all__ = ["GIVING", "TAKING"]

_RULES: Final = """
local p, op, id = KEYS[1], ARGV[1], ARGV[2]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local rkey, open = p .. ':r:' .. id, p .. ':open'
local most = 9007199254740991

local function fields(key)
  local flat, map = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
  return map
end
local function number(value)
  local found = tonumber(value or '0')
  return found == found and found or 0
end
local function whole(value) return string.format('%.0f', value) end
local function places(r)
  local found = {}
  for i = 1, number(r.n) do found[i] = r['k' .. i] end
  return found
end

-- What is to be written to accounts: `add` reads and computes, `commit` writes.
local have, changes = {}, {}
local function account(key)
  if have[key] == nil then have[key] = fields(p .. ':a:' .. key) end
  return have[key]
end
local function add(where, name, amount)
  for _, key in ipairs(where) do
    local one = account(key)
    if amount ~= 0 then
      one[name] = math.min(math.max(number(one[name]) + amount, 0), most)
      changes[#changes + 1] = {p .. ':a:' .. key, name, one}
    end
  end
end
local function commit()
  for _, one in ipairs(changes) do redis.call('HSET', one[1], one[2], whole(one[3][one[2]])) end
end

-- [n, then for each account: key, limit (-1: none), window_s, keep_ms], from ARGV[at] on
local function accounts(at)
  local found, n = {}, number(ARGV[at])
  for i = 0, n - 1 do
    local j = at + 1 + i * 4
    local window = number(ARGV[j + 2])
    local index = 0
    if window > 0 then index = math.floor(now / 1000 / window) end
    found[i + 1] = {
      key = ARGV[j] .. ':' .. whole(index), limit = ARGV[j + 1], keep = number(ARGV[j + 3]),
    }
  end
  return found
end
local function list_them(list)
  for _, one in ipairs(list) do redis.call('SADD', p .. ':accounts', one.key) end
end
local function touch(list)
  for _, one in ipairs(list) do
    local key = p .. ':a:' .. one.key
    redis.call('HSET', key, 'limit', one.limit)
    if one.keep > 0 then redis.call('PEXPIRE', key, one.keep) else redis.call('PERSIST', key) end
  end
end
local function keys_of(list)
  local found = {}
  for i, one in ipairs(list) do found[i] = one.key end
  return found
end

-- A decision belongs to who asked about it; what has no owner, and who has no name, are older.
local function is_foreign(r, by) return by ~= '' and (r.owner or '') ~= '' and r.owner ~= by end
-- Somebody else's tombstone binds nobody.
local function known(by)
  local r = fields(rkey)
  if r.phase == nil and is_foreign(r, by) then return {} end
  return r
end
"""

_TAKING: Final = """
if op == 'charge' then
  rkey = p .. ':u:' .. id
  local amount, list = number(ARGV[3]), accounts(5)
  if redis.call('EXISTS', rkey) == 1 then return 0 end
  add(keys_of(list), 'spent', amount)
  list_them(list)
  touch(list)
  commit()
  redis.call('HSET', rkey, 'state', 'settled')
  redis.call('PEXPIRE', rkey, ARGV[4])
  return 1
end

-- reserve: decision, phase, owner, memo_ms, accounts…, then offers: name, amount, what is needed, …
local r, phase = known(ARGV[4]), number(ARGV[3])
local over = r.state and r.state ~= 'reserved' and r.state ~= 'denied'
if r.state and (over or is_foreign(r, ARGV[4]) or phase < number(r.phase)) then
  return {'closed', '', '0', '', '0'}
end
if r.state and phase == number(r.phase) then
  return {r.status, r.name, r.answered, r.short, r.left}
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
for i = offers, #ARGV, 3 do
  local want, needed, room, tight = number(ARGV[i + 1]), number(ARGV[i + 2]), nil, ''
  for _, one in ipairs(list) do
    local limit, has = number(one.limit), account(one.key)
    if limit >= 0 then
      local free = limit - number(has.spent) - number(has.reserved) + (before_at[one.key] or 0)
      if room == nil or free < room then room, tight = free, one.key end
    end
  end
  if room == nil or needed <= room then
    status, name, amount = 'reserved', ARGV[i], want
    break
  end
  short, left = tight, math.max(0, room)
end
if status == 'reserved' then
  short, left = '', 0
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
return {status, name, whole(amount), short, whole(left)}
"""

_GIVING: Final = """
-- decision, tombstone_ms, keep_ms, who tells it (or nobody), then the operation's own
local by = ARGV[5]
local r = known(by)
local where = places(r)
local amount = number(r.amount)

local function close(state, keep)
  redis.call('ZREM', open, id)
  redis.call('HSET', rkey, 'state', state)
  if r.state == nil then redis.call('HSET', rkey, 'owner', by) end
  redis.call('PEXPIRE', rkey, keep)
end
local function stray(outcome)
  redis.call('HINCRBY', p .. ':astray', outcome, 1)
  return {outcome, '0', '0'}
end

if op == 'claim' then
  -- from its owner, to ARGV[6]
  if r.state == nil or ((r.owner or '') ~= by and r.owner ~= ARGV[6]) then return 0 end
  redis.call('HSET', rkey, 'owner', ARGV[6])
  return 1
end
if is_foreign(r, by) then return stray('foreign') end

if op == 'executing' then
  if r.state == 'reserved' then redis.call('HSET', rkey, 'exec', '1') end
  return {'done', '0', '0'}
end

if op == 'release' then
  if r.state == nil or r.state == 'denied' then
    close('released', ARGV[3])
  elseif r.state == 'reserved' then
    add(where, 'reserved', -amount)
    close('released', ARGV[4])
  elseif r.state == 'orphaned' then
    add(where, 'spent', -amount)
    add(where, 'orphans', -1)
    close('released', ARGV[4])
  end
  commit()
  return {'done', '0', '0'}
end

if op == 'orphan' then
  if r.state ~= 'reserved' then return 0 end
  add(where, 'reserved', -amount)
  add(where, 'spent', amount)
  add(where, 'orphans', 1)
  close('orphaned', ARGV[4])
  commit()
  return 1
end

-- settle: actual (-1: as reserved), and where nothing is: amount (-1: is not counted), accounts that pay
if r.state == 'settled' then return {'duplicate', '0', '0'} end
local cost = number(ARGV[6])
if r.state == nil or #where == 0 then
  local keep = r.state == nil and ARGV[3] or ARGV[4]
  local otherwise = number(ARGV[7])
  if cost < 0 then cost = otherwise end
  if otherwise < 0 or cost == 0 then
    close('settled', keep)
    return {'unreserved', '0', '0'}
  end
  local list = accounts(8)
  add(keys_of(list), 'spent', cost)
  list_them(list)
  close('settled', keep)
  touch(list)
  commit()
  return stray(#list > 0 and 'charged' or 'unplaced')
end
if cost < 0 then cost = amount end
local over, outcome = 0, 'late'
if r.state == 'reserved' or r.state == 'orphaned' then over = math.max(0, cost - amount) end
if r.state == 'reserved' then
  add(where, 'reserved', -amount)
  add(where, 'spent', cost)
  outcome = 'settled'
elseif r.state == 'orphaned' then
  add(where, 'spent', cost - amount)
  add(where, 'orphans', -1)
  outcome = 'corrected'
else
  add(where, 'spent', cost)
  amount = 0
end
if over > 0 then add(where, 'overruns', 1) end
close('settled', ARGV[4])
commit()
return {outcome, whole(amount), whole(over)}
"""

TAKING: Final = "#!lua\n" + _RULES + _TAKING
"""`reserve` and `charge`."""
GIVING: Final = "#!lua flags=allow-oom\n" + _RULES + _GIVING
"""`executing`, `release`, `orphan`, `settle` and `claim`."""
