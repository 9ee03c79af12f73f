-- The rules of slots, which the server runs atomically (see `queue_rules.py` for the rules themselves).
--
-- Keys of one namespace, all in one slot (`p` is their prefix):
--     p:r:<request>            hash: state (waiting, given), owner, tenant, weight, level, ageing, number,
--                              since, about, why, fence, at, n, and for each need i: pi, ai (alone), and with slots ui (seconds
--                              charged for it); if it was moved before another: line, seat, aged, order; or state: over
--     p:p:<pool>               hash: limit, ruled, alone, average; adapted, … of `queue_caps.lua`
--     p:h:<pool>               set of requests that have a slot
--     p:c:<pool>               set of levels that have a virtual time
--     p:e:<pool>:<level>       hash: now: virtual time; t<tenant> of a tenant that does not wait: end of its work
--     p:v:<pool>               set of levels at which requests wait
--     p:t:<pool>:<level>       sorted set of tenants that wait, by tag: <number of its oldest>:<tenant>
--     p:q:<level>:<length of pool>:<pool>:<tenant>
--                              sorted set of a tenant's line, by seat: the number of arrival, unless the request was moved
--     p:a:<pool>:<level>       sorted set of waiting requests, by time: <number>:<request>
--     p:held                   sorted set of requests that have slots, by the end of their lease
--     p:waiting                sorted set of requests that wait, by the end of their wait
--     p:owners                 sorted set of owners, by the time they were last known to be alive
--     p:w:<owner>, p:g:<owner> sets of requests that wait, or have slots
--     p:pools                  set of pools
--     p:count                  hash: fence, arrivals
--     p:sums                   hash: ends of requests, by configured pool (`queue_sums.py`):
--                              <what>:<part>:<pool>[:<tenant>] -> number, or microseconds
--     p:whose:<pool>           set of tenants that have sums of their own
-- KEYS[1]: prefix. ARGV: operation, seconds of a lease, now (empty: the server's clock), milliseconds for which an end
-- is remembered, then the operation's own.
local p, op, lease, keep = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local now = tonumber(ARGV[3])
if now == nil then
  local t = redis.call('TIME')
  now = tonumber(t[1]) + tonumber(t[2]) / 1000000
end
local SCAN, LOOK, AVERAGED, MIN_TOOK, UNKNOWN, MAX_WAITERS, UNSEEN = 64, 16, 16, 0.001, 1, 100000, 3

local function text(value) return string.format('%.17g', value) end
local function fields(key)
  local flat, map = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
  return map
end
local function number(value) return tonumber(value or '0') or 0 end

local requests = {}
local function request(id)
  if requests[id] == nil then
    local r = fields(p .. ':r:' .. id)
    r.id, r.needs = id, {}
    if r.number ~= nil then
      r.line, r.seat, r.aged = r.line or r.tenant, tonumber(r.seat or r.number), r.aged or r.since
      r.order = r.order or r.number
    end
    for i = 1, number(r.n) do
      r.needs[i] = {pool = r['p' .. i], alone = r['a' .. i] == '1', estimate = number(r['u' .. i])}
    end
    requests[id] = r
  end
  return requests[id]
end
-- The configured pool of a key's pool: browser for browser/example.org.
local function as_configured(name) return string.match(name, '^[^/]*') end
local pools = {}
local function pool(name)
  if pools[name] == nil then
    local one = fields(p .. ':p:' .. name)
    one.limit, one.average = number(one.limit), number(one.average)
    one.ruled, one.adapted, one.alone = tonumber(one.ruled or ''), tonumber(one.adapted or ''), one.alone or ''
    local whole = as_configured(name)
    if whole ~= name then one.whole = tonumber(redis.call('HGET', p .. ':p:' .. whole, 'ruled') or '') end
    one.has = redis.call('SCARD', p .. ':h:' .. name)
    pools[name] = one
  end
  return pools[name]
end
local function set(name, field, value)
  redis.call('HSET', p .. ':p:' .. name, field, type(value) == 'number' and text(value) or value)
  pool(name)[field] = value
end
local function most(name)
  local one = pool(name)
  return math.min(one.limit, one.ruled or one.limit, one.whole or one.limit, one.adapted or one.limit)
end
local function estimate_of(name)
  local average = pool(name).average
  return average > 0 and average or UNKNOWN
end
local function has_room(need)
  local one = pool(need.pool)
  if one.alone ~= '' or one.has >= most(need.pool) then return false end
  return not (need.alone and one.has > 0)
end
-- An entry that sorts by number of arrival, for a request or a tenant; and the name in it.
local function entry_of(arrival, what) return string.format('%015d:', number(arrival)) .. what end
local function named_in(entry) return string.sub(entry, 17) end
