
-- `reset`: the key of an account, in all its windows; arguments: who wants it, the writer
local own, many = id .. ':', 0
local before = {}
for _, place in ipairs(redis.call('SMEMBERS', p .. ':accounts')) do
  if string.sub(place, 1, #own) == own and string.find(string.sub(place, #own + 1), '^%d+$') then
    local spent = number(account(place).spent)
    many = many + 1
    before[place] = spent
    add({place}, 'spent', -spent)
    for _, name in ipairs({'overruns', 'orphans'}) do add({place}, name, -number(account(place)[name])) end
  end
end
commit()
for place, spent in pairs(before) do journal('reset', 0, {place}, nil, ARGV[3]) end
return many
