-- How far a tool's own errors let pools of `queue.lua` go: set by who reads of them, kept with each pool.
--
-- Fields of p:p:<pool> (p is the prefix of the queue): adapted, so many at a time now; cap, what
-- `queue_caps.py` knows of it, as text; cut, the highest fence that had been given at the last cut.
--     p:caps                 set of pools that have a cap
-- KEYS[1]: prefix. ARGV: op, then what the op needs.
local p, op = KEYS[1], ARGV[1]

-- stakes: ids…; gives [id, fence, pool, how many have a slot of it, …] of each that has slots
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
-- caps: gives [pool, cap, cut] of each
if op == 'caps' then
  local found = {}
  for i, name in ipairs(redis.call('SMEMBERS', p .. ':caps')) do
    found[i] = {name, unpack(redis.call('HMGET', p .. ':p:' .. name, 'cap', 'cut'))}
  end
  return found
end
-- set: pool, the cap as it was, as it is now (empty: none), so many at a time, 1 if it is a cut.
-- Gives [cap, cut] as they stand: others than was asked for, where it was not as it was.
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
