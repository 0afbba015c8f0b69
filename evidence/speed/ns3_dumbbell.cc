// SPDX-License-Identifier: GPL-2.0-only
/*
 * The benchmark's dumbbell in ns-3 with ns-3's own TCP: one bulk Cubic flow, MTU 1500, SACK, a tail-drop
 * queue in bytes. Two nodes and one cable, as in the lab: the least work that ns-3 can have with it.
 *
 * usage: ns3_dumbbell --mbps=48 --rttMs=40 --queueBytes=240000 --seconds=30
 * Prints one line of JSON: bytes that the receiver's application got, packets sent on the link, packets dropped.
 */
#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>

#include <iostream>

using namespace ns3;

namespace
{

constexpr uint32_t SEGMENT_BYTES = 1448; // 1500 less IP, TCP and timestamps
constexpr uint32_t PACKET_BYTES = 1500;
constexpr uint32_t PPP_BYTES = 2; // ns-3's devices count them
constexpr uint16_t PORT = 5000;

void Defaults(uint64_t bufferBytes)
{
	Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
	Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
	Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(SEGMENT_BYTES));
	Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
	Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(bufferBytes));
	Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(bufferBytes));
	Config::SetDefault("ns3::BulkSendApplication::SendSize", UintegerValue(SEGMENT_BYTES));
}

} // namespace

int main(int argc, char *argv[])
{
	double mbps = 48;
	double rttMs = 40;
	double seconds = 30;
	uint64_t queueBytes = 240000;
	CommandLine cmd(__FILE__);
	cmd.AddValue("mbps", "rate of the link", mbps);
	cmd.AddValue("rttMs", "propagation there and back", rttMs);
	cmd.AddValue("queueBytes", "limit of the queue, in IP bytes", queueBytes);
	cmd.AddValue("seconds", "how long the flow sends", seconds);
	cmd.Parse(argc, argv);

	Defaults(8 * (queueBytes + static_cast<uint64_t>(mbps * rttMs * 125)));
	NodeContainer nodes(2);
	PointToPointHelper cable;
	cable.DisableFlowControl(); // no queue above the device's: what it has no room for is dropped
	cable.SetChannelAttribute("Delay", TimeValue(Seconds(rttMs / 2000)));
	NetDeviceContainer devices = cable.Install(nodes);
	queueBytes = queueBytes * (PACKET_BYTES + PPP_BYTES) / PACKET_BYTES;
	for (uint32_t end : { 0, 1 }) {
		auto device = DynamicCast<PointToPointNetDevice>(devices.Get(end));
		device->SetDataRate(DataRate(static_cast<uint64_t>((end ? 100e9 : mbps * 1e6))));
		device->GetQueue()->SetMaxSize(QueueSize(QueueSizeUnit::BYTES, end ? 1 << 30 : queueBytes));
	}
	InternetStackHelper().Install(nodes);
	Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
	Ipv4InterfaceContainer interfaces = addresses.Assign(devices);

	PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), PORT));
	ApplicationContainer receiver = sink.Install(nodes.Get(1));
	BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(interfaces.GetAddress(1), PORT));
	bulk.Install(nodes.Get(0));

	Simulator::Stop(Seconds(seconds));
	Simulator::Run();
	auto queue = DynamicCast<PointToPointNetDevice>(devices.Get(0))->GetQueue();
	std::cout << "{\"received_bytes\": " << DynamicCast<PacketSink>(receiver.Get(0))->GetTotalRx()
		  << ", \"sent_packets\": " << queue->GetTotalReceivedPackets()
		  << ", \"dropped_packets\": " << queue->GetTotalDroppedPackets() << "}" << std::endl;
	Simulator::Destroy();
	return 0;
}
