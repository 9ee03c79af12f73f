-- The rules of the token buckets (see `token_buckets.py`).
--
-- Lua cannot undo a write, so everything is read before anything is written. All
-- numbers are whole and below 2^53, where Lua's doubles are exact.
--
-- Keys, all in one slot (`p` is their prefix):
--     p:b:<period>:<key>   hash: parts, since (ms); gone once the bucket has long been full again
--     p:d:<decision>       hash: `b:<key>` for each bucket that gave, `a:<buckets>` for each answer
-- arguments: decision, digest of all keys, memo_ms, then for each bucket: key, calls, period_ms, burst, take
local p, memo, answer = KEYS[1], KEYS[1] .. ':d:' .. ARGV[1], 'a:' .. ARGV[2]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function whole(value) return string.format('%.0f', value) end

local known = redis.call('HGET', memo, answer)
if known then return known end

local open, longest, short = {}, 0, ''
for i = 4, #ARGV, 5 do
  local key = ARGV[i]
  local calls, period = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local burst, take = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
  if redis.call('HEXISTS', memo, 'b:' .. key) == 0 then
    local name = p .. ':b:' .. ARGV[i + 2] .. ':' .. key
    local last = redis.call('HMGET', name, 'parts', 'since')
    local full, parts, since = burst * period, burst * period, now
    if last[1] then
      since = math.max(now, tonumber(last[2]))
      parts = math.min(full, tonumber(last[1]) + (since - tonumber(last[2])) * calls)
    end
    local missing = take * period - parts
    if missing > 0 then
      local rest = missing % calls
      local wait = (missing - rest) / calls
      if rest > 0 then wait = wait + 1 end
      if wait > longest then longest, short = wait, key end
    end
    open[#open + 1] = {
      key = key, name = name, parts = parts - take * period, since = since, full = full, calls = calls,
    }
  end
end

local said = whole(longest) .. ':' .. short
if longest == 0 then
  for _, one in ipairs(open) do
    redis.call('HSET', one.name, 'parts', whole(one.parts), 'since', whole(one.since))
    -- a minute longer than the bucket needs to be full, as clocks may be set back
    local left = math.ceil((one.full - one.parts) / one.calls) + 60000
    redis.call('PEXPIRE', one.name, whole(left))
    redis.call('HSET', memo, 'b:' .. one.key, '1')
  end
end
redis.call('HSET', memo, answer, said)
redis.call('PEXPIRE', memo, ARGV[3])
return said
