-- Counts of each configured pool.
local BOUNDS = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
local MAX_TENANTS, OTHER = 100, 'other'
local function add(what, part, name, amount)
  redis.call('HINCRBY', p .. ':sums', what .. ':' .. part .. ':' .. as_configured(name), string.format('%.0f', amount))
end
local function observe(what, name, seconds)
  local bucket = 1
  while BOUNDS[bucket] ~= nil and seconds > BOUNDS[bucket] do bucket = bucket + 1 end
  add(what, bucket, name, 1)
  add(what, 'sum', name, seconds * 1000000)
end
local function observe_share(name, r, seconds)
  local tenants, whose = p .. ':whose:' .. as_configured(name), r.tenant
  if redis.call('SISMEMBER', tenants, whose) == 0 then
    if redis.call('SCARD', tenants) < MAX_TENANTS then redis.call('SADD', tenants, whose) else whose = OTHER end
  end
  redis.call('HINCRBY', p .. ':sums', 'used:sum:' .. as_configured(name) .. ':' .. whose, string.format('%.0f', seconds * 1000000))
  redis.call('HSET', p .. ':sums', 'weight:now:' .. as_configured(name) .. ':' .. whose, r.weight)
end
