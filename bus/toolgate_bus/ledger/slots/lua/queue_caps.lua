-- Caps that a tool's own errors set on pools of `queue.lua`: set by the reader of the errors, kept with each pool.
--
-- Fields of p:p:<pool> (p is the prefix of the queue): adapted, the limit now; cap, the state of `queue_caps.py` as text;
-- cut, the highest fence that had been given at the last cut.
--     p:caps                 set of pools that have a cap
-- KEYS[1]: prefix. ARGV: op, then the operation's own.
local p, op = KEYS[1], ARGV[1]

-- stakes: ids…; returns [id, fence, pool, number of requests with a slot of it, …] of each that has slots
if op == 'stakes' then
  local found, sizes = {}, {}
  for i = 2, #ARGV do
    local key = p .. ':r:' .. ARGV[i]
    local state, fence, n = unpack(redis.call('HMGET', key, 'state', 'fence', 'n'))
    if state == 'given' then
      local one = {ARGV[i], fence}
      for k = 1, tonumber(n) do
        local name = redis.call('HGET', key, 'p' .. k)
        sizes[name] = sizes[name] or redis.call('SCARD', p .. ':h:' .. name)
        one[#one + 1] = name
        one[#one + 1] = sizes[name]
      end
      found[#found + 1] = one
    end
  end
  return found
end
-- caps: returns [pool, cap, cut] of each
if op == 'caps' then
  local found = {}
  for i, name in ipairs(redis.call('SMEMBERS', p .. ':caps')) do
    found[i] = {name, unpack(redis.call('HMGET', p .. ':p:' .. name, 'cap', 'cut'))}
  end
  return found
end
-- set: pool, the cap before, the cap now (empty: none), the limit, 1 if it is a cut.
-- Returns [cap, cut] as they stand, which are others if the cap was not as given.
local name, was, cap, most, cuts = unpack(ARGV, 2)
local key = p .. ':p:' .. name
local stands, cut = unpack(redis.call('HMGET', key, 'cap', 'cut'))
if (stands or '') ~= was then return {stands or '', cut or '0'} end
if cap == '' then
  redis.call('HDEL', key, 'cap', 'adapted', 'cut')
  redis.call('SREM', p .. ':caps', name)
  return {'', '0'}
end
if cuts == '1' then cut = redis.call('HGET', p .. ':count', 'fence') end
redis.call('HSET', key, 'cap', cap, 'adapted', most, 'cut', cut or '0')
redis.call('SADD', p .. ':caps', name)
redis.call('SADD', p .. ':pools', name)
return {cap, cut or '0'}
