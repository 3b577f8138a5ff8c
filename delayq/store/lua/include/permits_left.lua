local permits_left = {}
for name, share in pairs(shares or {}) do
  permits_left[#permits_left + 1], permits_left[#permits_left + 2] = name, digits(share.most)
end
