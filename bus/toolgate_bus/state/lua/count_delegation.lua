-- The rules of counting delegations (see `call_counts.py`). Keys, all in one slot (`p` is their prefix):
--     p:ds:<session>, p:dt:<tree>    number of delegations
--     p:dd:<decision>                the answer
-- arguments: decision, session, tree, limit of the session, limit of the tree (-1: none), memo_ms, kept_ms
local p = KEYS[1]
local memo, skey, tkey = p .. ':dd:' .. ARGV[1], p .. ':ds:' .. ARGV[2], p .. ':dt:' .. ARGV[3]
local known = redis.call('GET', memo)
if known then return known end

local session, tree = tonumber(redis.call('GET', skey) or '0'), tonumber(redis.call('GET', tkey) or '0')
local most_session, most_tree = tonumber(ARGV[4]), tonumber(ARGV[5])
local room = (most_session < 0 or session < most_session) and (most_tree < 0 or tree < most_tree)
if room then
  redis.call('SET', skey, string.format('%.0f', session + 1), 'PX', ARGV[7])
  redis.call('SET', tkey, string.format('%.0f', tree + 1), 'PX', ARGV[7])
end
local said = string.format('%d %.0f %.0f', room and 1 or 0, session, tree)
redis.call('SET', memo, said, 'PX', ARGV[6])
return said
