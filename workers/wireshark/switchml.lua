-- A Wireshark dissector for aggregation packets (docs/protocol.md: UDP ports 0xBEE0 to 0xBEEF).
-- Use: tshark -X lua_script:switchml.lua -r leaf1-eth1.pcap, or put it into Wireshark's folder of personal Lua plugins.
--
-- A frame captured where segmentation offload is on is a superframe: it carries many datagrams, one after the other, as
-- the kernel moves them. Each is shown as a separate packet within the frame; the frame's checksums are not filled in yet.

local switchml = Proto("switchml", "SwitchML aggregation")

local WORDS = { [1] = 64, [3] = 256, [5] = 64, [7] = 256 } -- of 4 bytes, each an integer, or two of 16 bits
local HEADER = 14
local TYPES = { [0] = "update", [1] = "result", [2] = "give", [3] = "take", [4] = "acknowledgement" }
local WITHOUT_VALUES = { [3] = true, [4] = true }

local f = {
    msg_type = ProtoField.uint8("switchml.msg_type", "Message type", base.DEC, TYPES, 0xf0),
    saturated = ProtoField.bool("switchml.saturated", "Saturated", 8, nil, 0x08),
    size = ProtoField.uint8("switchml.size", "Size", base.DEC, { [1] = "64 values", [3] = "256 values", [5] = "128 values", [7] = "512 values" }, 0x07),
    job = ProtoField.uint8("switchml.job_number", "Job number (lease)", base.DEC),
    tsi = ProtoField.uint32("switchml.tsi", "TSI (chunk)", base.DEC),
    version = ProtoField.uint16("switchml.version", "Version", base.DEC, nil, 0x8000),
    slot = ProtoField.uint16("switchml.slot", "Slot", base.DEC, nil, 0x7fff),
    e0 = ProtoField.int8("switchml.e0", "Exponent 0", base.DEC),
    not_quantizable = ProtoField.bool("switchml.not_quantizable", "Not quantizable", 8, nil, 0x80),
    scatter = ProtoField.bool("switchml.scatter", "Of a scatter", 8, nil, 0x40),
    call = ProtoField.uint32("switchml.call", "Call", base.HEX),
    values = ProtoField.bytes("switchml.values", "Values"),
    value = ProtoField.int32("switchml.value", "Value", base.DEC),
    short = ProtoField.int16("switchml.short_value", "Value", base.DEC),
    datagrams = ProtoField.uint32("switchml.superframe", "Datagrams in this superframe", base.DEC),
}
switchml.fields = { f.msg_type, f.saturated, f.size, f.job, f.tsi, f.version, f.slot, f.e0,
    f.not_quantizable, f.scatter, f.call, f.values, f.value, f.short, f.datagrams }

local malformed = ProtoExpert.new("switchml.malformed", "Not a whole packet", expert.group.MALFORMED, expert.severity.WARN)
local offloaded = ProtoExpert.new("switchml.offloaded",
    "Segmentation offload: the kernel carries these datagrams as one frame; each counts as a packet of its own",
    expert.group.COMMENTS_GROUP, expert.severity.NOTE)
switchml.experts = { malformed, offloaded }

-- Returns the length of the datagram at the start of `buffer`, or nil if it is not complete.
local function length_of(buffer)
    if buffer:len() < HEADER then return nil end
    local words = WORDS[buffer(0, 1):bitfield(5, 3)]
    if words and WITHOUT_VALUES[buffer(0, 1):bitfield(0, 4)] then return HEADER end
    local length = words and HEADER + 4 * words
    return length and length <= buffer:len() and length or nil
end

local function show(buffer, tree, length)
    local kind = TYPES[buffer(0, 1):bitfield(0, 4)] or "unknown"
    local packet = tree:add(switchml, buffer(0, length))
    packet:append_text(string.format(", %s, lease %d, chunk %d, slot %d/%d", kind, buffer(1, 1):uint(), buffer(2, 4):uint(),
        buffer(6, 2):bitfield(1, 15), buffer(6, 2):bitfield(0, 1)))
    packet:add(f.msg_type, buffer(0, 1))
    packet:add(f.saturated, buffer(0, 1))
    packet:add(f.size, buffer(0, 1))
    packet:add(f.job, buffer(1, 1))
    packet:add(f.tsi, buffer(2, 4))
    packet:add(f.version, buffer(6, 2))
    packet:add(f.slot, buffer(6, 2))
    packet:add(f.e0, buffer(8, 1))
    packet:add(f.not_quantizable, buffer(9, 1))
    packet:add(f.scatter, buffer(9, 1))
    packet:add(f.call, buffer(10, 4))
    if length == HEADER then return end
    local values = packet:add(f.values, buffer(HEADER, length - HEADER))
    local of_16_bits = buffer(0, 1):bitfield(5, 1) == 1
    local bytes = of_16_bits and 2 or 4
    for at = HEADER, length - bytes, bytes do
        values:add(of_16_bits and f.short or f.value, buffer(at, bytes))
    end
end

function switchml.dissector(buffer, info, tree)
    local first, count, at = nil, 0, 0
    while at < buffer:len() do
        local rest = buffer(at):tvb()
        local length = length_of(rest)
        if not length then
            tree:add(switchml, rest()):add_proto_expert_info(malformed)
            break
        end
        first = first or rest
        show(rest, tree, length)
        count, at = count + 1, at + length
    end
    if count > 0 then
        info.cols.protocol = "SwitchML"
        local kind = first(0, 1):bitfield(0, 4) == 1 and "Result" or "Update"
        local more = count > 1 and string.format(" (superframe of %d datagrams)", count) or ""
        info.cols.info = string.format("%s, lease %d, chunk %d%s", kind, first(1, 1):uint(), first(2, 4):uint(), more)
    end
    if count > 1 then
        tree:add(f.datagrams, count):set_generated():add_proto_expert_info(offloaded)
    end
    return at
end

local udp = DissectorTable.get("udp.port")
for port = 0xbee0, 0xbeef do
    udp:add(port, switchml)
end
