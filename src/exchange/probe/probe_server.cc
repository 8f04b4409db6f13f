#include <algorithm>
#include <atomic>
#include <utility>

#include "exchange/probe/figures.h"
#include "exchange/probe/observed_transport.h"
#include "k3pod/exchange/probe.h"

namespace k3pod {
namespace exchange {
namespace {

// One frame is in work at a time, as one station has one dispatch outstanding.
class Server final : public ProbeServer, private FrameObserver {
  public:
    Status open(const ExchangeOptions& options, const MakeTransport& make_transport) {
        K3POD_ASSIGN(server_, ExchangeServer::create(options, observed(make_transport, *this),
                                                     clock_, metrics_));
        return Status::ok();
    }

    std::vector<std::byte> local_address() const override { return server_->local_address(); }
    Status open_session(const Assignment& assignment, FrameWork work) override {
        return server_->open_session(
            assignment, [this, node = assignment.node_index, work = std::move(work)](
                            int32_t layer, int32_t rows, std::span<const Bf16> latents,
                            std::span<const wire::WireEntry> entries, std::span<float> out) {
                ServerFigures figures;
                const int64_t start = now_ns();
                figures.queue_ns = clamp_ns(start - arrived_ns_);
                figures.last_tail_ns = tail_ns_;
                if (!work) std::fill(out.begin(), out.end(), 0.0f);
                const Status status =
                    work ? work(layer, rows, latents, entries, out) : Status::ok();
                const int64_t end = now_ns();
                figures.work_ns = clamp_ns(end - start);
                write_figures(figures, node, out.first(out.size() / static_cast<size_t>(rows)));
                worked_ns_ = end;
                return status;
            });
    }
    void close_session(uint64_t session) override { server_->close_session(session); }

  private:
    void on_receive(const wire::FrameHeader& header) override {
        if (header.kind == wire::FrameKind::kRequest) arrived_ns_ = now_ns();
    }
    void on_send(const wire::FrameHeader& header) override {
        if (header.kind != wire::FrameKind::kReply || header.part != 0) return;
        tail_ns_ = clamp_ns(now_ns() - worked_ns_);
    }

    const SteadyClock clock_;
    MetricsRegistry metrics_;
    std::atomic<int64_t> arrived_ns_{0}, worked_ns_{0};
    std::atomic<uint32_t> tail_ns_{0};
    std::unique_ptr<ExchangeServer> server_;  // Last: its threads use what is above.
};

}  // namespace
}  // namespace exchange

Result<std::unique_ptr<ProbeServer>> ProbeServer::create(const ExchangeOptions& options,
                                                         const MakeTransport& make_transport) {
    auto server = std::make_unique<exchange::Server>();
    K3POD_TRY(server->open(options, make_transport));
    return std::unique_ptr<ProbeServer>(std::move(server));
}

}  // namespace k3pod
