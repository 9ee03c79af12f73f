-- The rules of counting calls (see `call_counts.py`). Keys, all in one slot (`p` is their prefix, with the scope in it):
--     p:s:<session>    hash: calls, turn, iteration, group, call, row
--     p:r:<session>    list: the last calls of the turn, if there is a window
--     p:t:<tree>       number of calls
--     p:f:<tree>       time of the first of them (ms)
--     p:d:<decision>   the answer
-- arguments: decision, session, tree, call, iteration, group, window, memo_ms, kept_ms
local p = KEYS[1]
local memo, skey, rkey = p .. ':d:' .. ARGV[1], p .. ':s:' .. ARGV[2], p .. ':r:' .. ARGV[2]
local tkey, fkey = p .. ':t:' .. ARGV[3], p .. ':f:' .. ARGV[3]
local call, iteration, group, window = ARGV[4], tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function whole(value) return string.format('%.0f', value) end

local known = redis.call('GET', memo)
if known then return known end

-- Everything is read, and thereby checked for its type, before anything is written
local s = redis.call('HMGET', skey, 'calls', 'turn', 'iteration', 'group', 'call', 'row')
local recent = redis.call('LRANGE', rkey, 0, -1)
local tree = tonumber(redis.call('GET', tkey) or '0') + 1
local first = tonumber(redis.call('GET', fkey) or now)

local calls, turn, row = 1, 1, 1
local goes_on, told = false, iteration
if s[1] then
  calls = tonumber(s[1]) + 1
  local last = tonumber(s[3])
  -- a call without an iteration begins no turn: its caller may give each response another group
  goes_on = iteration == 0 or iteration > last or (iteration == last and group == s[4])
  if iteration == 0 then told, group = last, s[4] end
end
if goes_on then
  turn = tonumber(s[2]) + 1
  if s[5] == call then row = tonumber(s[6]) + 1 end
end
local same = 0
if window > 0 then
  same = 1
  if goes_on then
    for i = math.max(1, #recent - window + 2), #recent do
      if recent[i] == call then same = same + 1 end
    end
  end
end

redis.call('SET', tkey, whole(tree), 'PX', ARGV[9])
redis.call('SET', fkey, whole(first), 'PX', ARGV[9])
redis.call('HSET', skey, 'calls', whole(calls), 'turn', whole(turn),
  'iteration', whole(told), 'group', group, 'call', call, 'row', whole(row))
redis.call('PEXPIRE', skey, ARGV[9])
if not goes_on or window == 0 then redis.call('DEL', rkey) end
if window > 0 then
  redis.call('RPUSH', rkey, call)
  redis.call('LTRIM', rkey, -window, -1)
  redis.call('PEXPIRE', rkey, ARGV[9])
end
local said = table.concat({whole(calls), whole(tree), whole(turn), whole(row), whole(same),
  whole(math.max(0, now - first))}, ' ')
redis.call('SET', memo, said, 'PX', ARGV[8])
return said
