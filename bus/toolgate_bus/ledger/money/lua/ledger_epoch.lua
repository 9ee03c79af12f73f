
-- `begin`, `lose`, `find`, `lacks`, `declare`, `decide`, `ended` and `rebuild`: the identity of the ledger, its loss, and
-- the end of a loss
if op == 'begin' then
  -- arguments: an epoch for a ledger that has none
  if not redis.call('HGET', ekey, 'id') then redis.call('HSET', ekey, 'id', id, 'since', whole(now)) end
  return {redis.call('HGET', ekey, 'id'), redis.call('HGET', ekey, 'decided') or '0'}
end

if op == 'lose' then
  -- arguments: the remembered epoch; the reason, an epoch for a ledger that has none, the epochs it replaced…, the writer
  local epoch = redis.call('HMGET', ekey, 'id', 'lost', 'was:' .. id)
  if ARGV[3] ~= 'behind' and (epoch[1] == id or epoch[3]) then return 0 end
  if not epoch[1] then redis.call('HSET', ekey, 'id', ARGV[4], 'since', whole(now)) end
  if ARGV[3] ~= 'behind' then
    redis.call('HSET', ekey, 'was:' .. id, '1')
    for i = 5, #ARGV - 1 do redis.call('HSET', ekey, 'was:' .. ARGV[i], '1') end
  end
  if not epoch[2] then redis.call('HSET', ekey, 'lost', ARGV[3], 'lost_at', whole(now), 'lost_by', writer) end
  return 1
end

if op == 'find' then
  -- argument: the writer that had missed changes, which are there again
  local epoch = redis.call('HMGET', ekey, 'lost', 'lost_by')
  if epoch[1] == 'behind' and epoch[2] == writer then redis.call('HDEL', ekey, 'lost', 'lost_at', 'lost_by') end
  return 1
end

if op == 'lacks' then
  -- arguments: nothing; then for each change its kind, decision or event, owner and phase. Returns the places, from 0, of
  -- changes that would have an effect if made again, by the other scripts' rules; one that cannot be read is among them
  local found = {}
  for i = 3, #ARGV - 1, 4 do
    local kind, one, by, has = ARGV[i], ARGV[i + 1], ARGV[i + 2], false
    if kind == 'charge' then
      has = select(2, pcall(mark_of, 'u' .. one)) == ''
    else
      local is_read, r = pcall(record, one)
      if not is_read then r = {} end
      local state, phase, foreign = r.state, r.phase, is_foreign(r, by)
      if state and (phase or not foreign) then
        local over = state ~= 'reserved' and state ~= 'denied'
        if kind == 'restore' then has = over or foreign or number(ARGV[i + 3]) <= number(phase)
        elseif phase and not foreign then
          -- of a reservation that would be made again first
          has = kind == 'settle' and state == 'settled' or kind == 'orphan' and over
            or kind == 'release' and (state == 'settled' or state == 'released')
        end
      end
    end
    if not has then found[#found + 1] = (i - 3) / 4 end
  end
  return found
end

if op == 'declare' then
  -- arguments: the remembered epoch; the number of changes of this writer, now that they were made again (empty: more of
  -- them follow); the mark before these changes, and the mark after them. A writer without the mark lacks earlier ones.
  local mark = 'a:' .. writer
  if (redis.call('HGET', ekey, 'id') or '') ~= id then return '0' end
  if ARGV[4] ~= '' and redis.call('HGET', ekey, mark) ~= ARGV[4] then return '0' end
  if ARGV[3] == '' then
    redis.call('HSET', ekey, mark, ARGV[5])
    return '1'
  end
  redis.call('HDEL', ekey, mark)
  local has = number(redis.call('HGET', ekey, 'w:' .. writer))
  local new = whole(math.max(has, number(ARGV[3])) + 1)
  redis.call('HSET', ekey, 'w:' .. writer, new)
  return new
end

local function decide(kind, by, reason, amount)
  local epoch = redis.call('HMGET', ekey, 'lost', 'since')
  redis.call('HDEL', ekey, 'lost', 'lost_at', 'lost_by')
  redis.call('HINCRBY', ekey, 'decided', 1)
  write_entry({
    event = 'ledger', kind = kind, id = kind, amount = 0, accounts = {}, at = now / 1000, by = by, reason = reason,
    added = amount, lost = epoch[1] or '', since = number(epoch[2]) / 1000,
  })
  return 1
end

if op == 'decide' then
  -- arguments: who decided; the decision, the reason, the amount added
  if not redis.call('HGET', ekey, 'lost') and ARGV[3] == 'accept-loss' then return 0 end
  return decide(ARGV[3], id, ARGV[4], number(ARGV[5]))
end

if op == 'ended' then
  -- arguments: how long an end is remembered (ms); the end of each decision or event, whose facts may come again
  local closed = {}
  for i = 3, #ARGV - 1, 2 do
    local one, ending = ARGV[i], ARGV[i + 1]
    local r = record(one)
    local state = ending == 'released' and ending or 'settled'
    if r.state and ending ~= 'charged' then
      state = ending
      if r.state == 'settled' or r.state == ending or r.state == 'released' and ending == 'orphaned' then state = nil end
      local where, amounts = places(r), held_by(r)
      if state and r.state == 'reserved' then add(where, 'reserved', amounts, -1) end
      if state and r.state == 'orphaned' then
        add(where, 'spent', amounts, -1)
        add(where, 'orphans', -1)
      end
      if state == 'orphaned' then add(where, 'orphans', 1) end
    elseif r.state then
      state = nil
    end
    if state == 'settled' then mark_settled(one, r.phase, r.owner) end
    if state then closed[#closed + 1] = {one, state} end
    if ending == 'charged' and not mark_of('u' .. one) then mark('u' .. one, '') end
  end
  commit()
  for _, one in ipairs(closed) do
    local key = p .. ':r:' .. one[1]
    redis.call('ZREM', open, one[1])
    redis.call('HSET', key, 'state', one[2])
    redis.call('PEXPIRE', key, one[2] == 'settled' and whole_ms or id)
  end
  return 1
end

if op == 'rebuild' then
  -- arguments: the journal's newest entry as read; then for each account: key, amount added, how long it is kept (ms)
  local newest = redis.call('XREVRANGE', p .. ':journal', '+', '-', 'COUNT', 1)
  if (newest[1] and newest[1][1] or '0-0') ~= id then return 0 end
  local list = {}
  for i = 3, #ARGV - 1, 3 do
    list[#list + 1] = {key = ARGV[i], new = account(ARGV[i]).limit == nil, keep = number(ARGV[i + 2])}
    add({ARGV[i]}, 'spent', number(ARGV[i + 1]))
  end
  list_them(list)
  commit()
  for _, one in ipairs(list) do
    local key = p .. ':a:' .. one.key
    if one.new then redis.call('HSET', key, 'limit', '-1') end
    if one.new and one.keep > 0 then redis.call('PEXPIRE', key, one.keep) end
  end
  return 1
end
