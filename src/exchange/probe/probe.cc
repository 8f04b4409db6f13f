#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "exchange/probe/figures.h"
#include "exchange/probe/observed_transport.h"
#include "k3pod/exchange/probe.h"

namespace k3pod {
namespace exchange {
namespace {

double microseconds(int64_t ns) {
    return static_cast<double>(ns) / 1e3;
}

// The way of one holder's frame.
struct Way {
    std::atomic<int64_t> sent_ns{0}, got_ns{0};
};

// An exchange that waits for its last figure.
struct Pending {
    ExchangeParts parts;
    int32_t last = 0;          // the holder that answered last
    double round_trip_us = 0;  // its frame's, out of the station and back
};

class Probe final : public ExchangeProbe, private FrameObserver {
  public:
    Probe(const ExchangeOptions& options, const ProbeShape& shape, size_t num_servers)
        : options_(options), shape_(shape), ways_(num_servers) {
        const auto rows = static_cast<size_t>(options.limits.max_rows);
        const size_t picks = rows * static_cast<size_t>(options.limits.top_k);
        latents_.assign(rows * static_cast<size_t>(options.limits.latent), 0.5f);
        out_.resize(latents_.size());
        experts_.resize(picks);
        weights_.assign(picks, 1.0f / static_cast<float>(options.limits.top_k));
    }

    Status open(std::span<const std::string> servers, const MakeTransport& make_transport) {
        K3POD_ASSIGN(client_,
                     ExchangeClient::create(options_, probe_placement(shape_, servers),
                                            observed(make_transport, *this), FrameWork(), clock_,
                                            metrics_, [](const std::string&, const Status&) {}));
        return Status::ok();
    }

    std::vector<std::byte> local_address() const override { return client_->local_address(); }
    Status attach(const std::string& server, std::span<const std::byte> address,
                  uint64_t session) override {
        return client_->attach(server, address, session);
    }

    Status exchange(int32_t rows) override {
        const RoutedRows routed = pick(rows);
        const int64_t begin = now_ns();
        K3POD_TRY(client_->dispatch(routed));
        const auto out = std::span(out_).first(routed.latents.size());
        K3POD_TRY(client_->combine(out));
        note(now_ns() - begin);
        return Status::ok();
    }

    std::vector<ExchangeParts> take() override { return std::exchange(finished_, {}); }

  private:
    RoutedRows pick(int32_t rows) {
        const int32_t top_k = options_.limits.top_k;
        const auto picks = static_cast<size_t>(rows) * static_cast<size_t>(top_k);
        for (uint16_t& expert : std::span(experts_).first(picks)) {
            expert = static_cast<uint16_t>(next_expert_);
            next_expert_ = (next_expert_ + 1) % shape_.num_experts;
        }
        const auto values = static_cast<size_t>(rows) * static_cast<size_t>(options_.limits.latent);
        return {.step = ++step_,
                .layer = shape_.layer,
                .rows = rows,
                .latent = options_.limits.latent,
                .top_k = top_k,
                .latents = std::span(latents_).first(values),
                .experts = std::span(experts_).first(picks),
                .weights = std::span(weights_).first(picks)};
    }

    void note(int64_t total_ns) {
        const auto row = std::span(out_).first(static_cast<size_t>(options_.limits.latent));
        if (pending_) finish(read_figures(pending_->last, row).last_tail_ns);
        const auto last =
            std::ranges::max_element(ways_, {}, [](const Way& way) { return way.got_ns.load(); });
        Pending& now = pending_.emplace();
        now.last = static_cast<int32_t>(last - ways_.begin());
        const ServerFigures figures = read_figures(now.last, row);
        now.round_trip_us = microseconds(last->got_ns - last->sent_ns);
        now.parts.total_us = microseconds(total_ns);
        now.parts.hand_off_us = now.parts.total_us - now.round_trip_us;
        now.parts.server_us = microseconds(figures.queue_ns);
        now.parts.expert_us = microseconds(figures.work_ns);
    }

    void finish(uint32_t tail_ns) {
        ExchangeParts& parts = pending_->parts;
        parts.server_us += microseconds(tail_ns);
        parts.wire_us = pending_->round_trip_us - parts.server_us - parts.expert_us;
        finished_.push_back(parts);
    }

    void on_send(const wire::FrameHeader& header) override {
        const bool is_first = header.kind == wire::FrameKind::kRequest && header.part == 0;
        if (is_first && header.node < ways_.size()) ways_[header.node].sent_ns = now_ns();
    }
    void on_receive(const wire::FrameHeader& header) override {
        const bool is_reply = header.kind == wire::FrameKind::kReply;
        if (is_reply && header.node < ways_.size()) ways_[header.node].got_ns = now_ns();
    }

    const ExchangeOptions options_;
    const ProbeShape shape_;
    const SteadyClock clock_;
    MetricsRegistry metrics_;
    std::vector<float> latents_, out_, weights_;
    std::vector<uint16_t> experts_;
    std::vector<Way> ways_;  // by holder
    std::optional<Pending> pending_;
    std::vector<ExchangeParts> finished_;
    uint64_t step_ = 0;
    int32_t next_expert_ = 0;
    std::unique_ptr<ExchangeClient> client_;  // Last: its threads use what is above.
};

}  // namespace
}  // namespace exchange

Placement probe_placement(const ProbeShape& shape, std::span<const std::string> servers) {
    Placement placement{.first_layer = shape.layer,
                        .num_layers = 1,
                        .num_experts = shape.num_experts,
                        .width = shape.width,
                        .holders = {servers.begin(), servers.end()},
                        .slices = {}};
    const auto num_servers = static_cast<int32_t>(servers.size());
    const int32_t blocks = shape.width / kSliceMultiple;
    std::vector<PlacedSlice> slices;
    for (int32_t i = 0; i < num_servers; ++i) {
        slices.push_back({blocks * i / num_servers * kSliceMultiple,
                          blocks * (i + 1) / num_servers * kSliceMultiple, i});
    }
    placement.slices.assign(static_cast<size_t>(shape.num_experts), slices);
    return placement;
}

int32_t max_probe_servers(int32_t latent) {
    return latent / exchange::kFigureValues;
}

Result<std::unique_ptr<ExchangeProbe>> ExchangeProbe::create(const ExchangeOptions& options,
                                                             const ProbeShape& shape,
                                                             std::span<const std::string> servers,
                                                             const MakeTransport& make_transport) {
    const int32_t most =
        std::min(max_probe_servers(options.limits.latent), shape.width / kSliceMultiple);
    if (servers.empty() || std::cmp_greater(servers.size(), most)) {
        return invalid_argument(
            fmt::format("{} servers cannot be measured at once, expected 1 to {} with a latent of "
                        "{} and experts of width {}",
                        servers.size(), most, options.limits.latent, shape.width));
    }
    auto probe = std::make_unique<exchange::Probe>(options, shape, servers.size());
    K3POD_TRY(probe->open(servers, make_transport));
    return std::unique_ptr<ExchangeProbe>(std::move(probe));
}

}  // namespace k3pod
