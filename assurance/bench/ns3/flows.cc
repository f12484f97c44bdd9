/* Flows in ns-3 between hosts on leaves that one spine joins, for the comparison in beside.py. */

#include <ctime>
#include <string>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

namespace fanin
{

struct Result
{
    uint64_t events = 0;
    uint64_t packetHops = 0;
    double processorSeconds = 0; // of the run alone
    std::vector<double> ends;    // seconds; of each flow, when its last byte has arrived
};

const uint16_t PORT = 20000;
const char* const QUEUE = "10000000p"; // without limit

ns3::NetDeviceContainer
Join(ns3::Ptr<ns3::Node> a, ns3::Ptr<ns3::Node> b, uint64_t rate, double delay, ns3::Ipv4AddressHelper& addresses)
{
    ns3::PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", ns3::DataRateValue(ns3::DataRate(rate)));
    link.SetChannelAttribute("Delay", ns3::TimeValue(ns3::Seconds(delay)));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", ns3::StringValue(QUEUE));
    ns3::NetDeviceContainer ends = link.Install(a, b);
    addresses.Assign(ends);
    ns3::TrafficControlHelper().Uninstall(ends);
    addresses.NewNetwork();
    return ends;
}

/* One flow from each host, to the host destinations[i]; rates in bits per second, the delay in seconds, window in
 * segments of `segment` bytes. */
Result
Run(unsigned leaves,
    const std::vector<unsigned>& destinations,
    uint64_t size,
    uint64_t hostRate,
    uint64_t uplinkRate,
    double delay,
    unsigned segment,
    unsigned window)
{
    using namespace ns3;

    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(segment));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(window));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(window * segment));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(window * segment));

    const unsigned count = destinations.size();
    NodeContainer hosts(count), switches(leaves + 1);
    InternetStackHelper stack;
    stack.Install(hosts);
    stack.Install(switches);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    NetDeviceContainer devices;
    for (unsigned i = 0; i < count; i++)
        devices.Add(Join(hosts.Get(i), switches.Get(i / (count / leaves)), hostRate, delay, addresses));
    for (unsigned i = 0; i < leaves; i++)
        devices.Add(Join(switches.Get(i), switches.Get(leaves), uplinkRate, delay, addresses));
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    Result result;
    result.ends.resize(count);
    for (uint32_t i = 0; i < devices.GetN(); i++)
        devices.Get(i)->TraceConnectWithoutContext(
            "PhyTxEnd",
            Callback<void, Ptr<const Packet>>([&result](Ptr<const Packet>) { result.packetHops++; }));
    std::vector<uint64_t> arrived(count);
    for (unsigned i = 0; i < count; i++)
    {
        const unsigned to = destinations[i];
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), PORT));
        sink.Install(hosts.Get(to)).Get(0)->TraceConnectWithoutContext(
            "Rx",
            Callback<void, Ptr<const Packet>, const Address&>(
                [&, i](Ptr<const Packet> packet, const Address&) {
                    arrived[i] += packet->GetSize();
                    if (arrived[i] == size)
                        result.ends[i] = Simulator::Now().GetSeconds();
                }));
        Ipv4Address address = hosts.Get(to)->GetObject<Ipv4>()->GetAddress(1, 0).GetLocal();
        BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(address, PORT));
        source.SetAttribute("MaxBytes", UintegerValue(size));
        source.Install(hosts.Get(i));
    }

    const clock_t begin = clock();
    Simulator::Run();
    result.processorSeconds = double(clock() - begin) / CLOCKS_PER_SEC;
    result.events = Simulator::GetEventCount();
    Simulator::Destroy();
    return result;
}

} // namespace fanin
