-- For wrk: each request claims for another user, in the order of a file made by
-- `qiang tokens --count N --out FILE`. Its argument is that file.

local headers, count, at = {}, 0, 0

function init(args)
  for line in io.lines(args[1]) do
    local token = line:match(",(.+)$")
    if token and token ~= "token" then
      count = count + 1
      headers[count] = token
    end
  end
end

function request()
  at = at % count + 1
  return wrk.format("POST", nil, { ["Authorization"] = "Bearer " .. headers[at] })
end
