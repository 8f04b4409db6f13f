#include "measuring_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "k3pod/weights/checkpoint.h"
#include "model_folder.h"
#include "pod_plan.h"

namespace k3pod {
namespace {

constexpr std::chrono::seconds kPatience{60};

void append(Address& out, std::span<const std::byte> bytes) {
    const size_t end = out.size();
    out.resize(end + bytes.size());
    if (!bytes.empty()) std::memcpy(out.data() + end, bytes.data(), bytes.size());
}

void append_number(Address& out, uint32_t number) {
    append(out, std::as_bytes(std::span(&number, 1)));
}

std::optional<uint32_t> take_number(std::span<const std::byte>& in) {
    uint32_t number = 0;
    if (in.size() < sizeof(number)) return std::nullopt;
    std::memcpy(&number, in.data(), sizeof(number));
    in = in.subspan(sizeof(number));
    return number;
}

class Session final : public MeasuringSession, private ControlEvents {
  public:
    Status open(const PodConfig& pod, std::span<const Address> addresses,
                const std::vector<std::vector<Shard>>& shards) {
        nodes_.resize(shards.size());
        waiting_.assign(shards.size(), unavailable("no answer yet"));
        for (size_t i = 0; i < shards.size(); ++i) nodes_[i].name = pod.experts.at(i).name;
        for (size_t i = 0; i < shards.size(); ++i) {
            const ExpertConfig& node = pod.experts[i];
            Assignment assignment;
            assignment.epoch = 1;
            assignment.node_index = static_cast<uint16_t>(i);
            assignment.max_rows = kMostProbeRows;
            assignment.shards = shards[i];
            assignment.station_address = pack_addresses(addresses);
            links_.push_back(ControlLink::start(
                node.control, node.name, measuring_identity(pod, "station"), assignment, *this));
        }
        return wait_until_ready();
    }

    const std::vector<MeasuredNode>& nodes() const override { return nodes_; }

  private:
    Status wait_until_ready() {
        std::unique_lock lock(mutex_);
        const auto is_over = [this] {
            return !failed_ || std::ranges::all_of(nodes_, [](const MeasuredNode& node) {
                return node.session != 0;
            });
        };
        const bool in_time = changed_.wait_for(lock, kPatience, is_over);
        if (!failed_) return failed_;
        if (in_time) return Status::ok();
        for (size_t i = 0; i < nodes_.size(); ++i) {
            if (nodes_[i].session != 0) continue;
            return deadline_exceeded(fmt::format(
                "{} is not ready within {} s: {}; on that machine run: k3pod fabric serve --pod "
                "FILE --node {}",
                nodes_[i].name, kPatience.count(), waiting_[i].message(), nodes_[i].name));
        }
        return Status::ok();
    }

    size_t index_of(const std::string& node) const {
        return static_cast<size_t>(std::ranges::find(nodes_, node, &MeasuredNode::name) -
                                   nodes_.begin());
    }

    void on_waiting(const std::string& node, const Status& why) override {
        const std::lock_guard lock(mutex_);
        waiting_.at(index_of(node)) = why;
        // A refusal does not mend itself.
        if (why.code() == Code::kFailedPrecondition) failed_ = why.with_context(node);
        changed_.notify_all();
    }
    void on_connected(const std::string&, const NodeIdentity&) override {}
    void on_report(const std::string& name, uint64_t session, const ServerReport& report) override {
        const std::lock_guard lock(mutex_);
        MeasuredNode& node = nodes_.at(index_of(name));
        if (report.phase == ServerPhase::kFailed)
            failed_ = unavailable(name + ": " + report.message);
        if (report.phase == ServerPhase::kReady) {
            auto addresses = unpack_addresses(report.data_address);
            if (addresses) {
                node.addresses = std::move(*addresses);
                node.session = session;
            } else {
                failed_ = addresses.status().with_context(name);
            }
        }
        changed_.notify_all();
    }
    void on_lost(const std::string& node, const Status& why) override {
        const std::lock_guard lock(mutex_);
        failed_ = why.with_context(node);
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<MeasuredNode> nodes_;
    std::vector<Status> waiting_;  // why a node is not there yet
    Status failed_;
    std::vector<std::unique_ptr<ControlLink>> links_;  // Last: they call what is above.
};

}  // namespace

Address pack_addresses(std::span<const Address> addresses) {
    Address packed;
    append_number(packed, static_cast<uint32_t>(addresses.size()));
    for (const Address& address : addresses) {
        append_number(packed, static_cast<uint32_t>(address.size()));
        append(packed, address);
    }
    return packed;
}

Result<std::vector<Address>> unpack_addresses(std::span<const std::byte> packed) {
    const Status refused = invalid_argument(
        "sends no list of addresses; does k3pod fabric serve run there, of the same build?");
    const auto count = take_number(packed);
    if (!count || *count > packed.size()) return refused;
    std::vector<Address> addresses;
    for (uint32_t i = 0; i < *count; ++i) {
        const auto size = take_number(packed);
        if (!size || *size > packed.size()) return refused;
        addresses.emplace_back(packed.begin(), packed.begin() + *size);
        packed = packed.subspan(*size);
    }
    if (!packed.empty()) return refused;
    return addresses;
}

Result<ModelConfig> measured_model(const PodConfig& pod) {
    K3POD_ASSIGN(const PlanModel model, read_plan_model(pod, "", ""));
    return model.config;
}

ExchangeOptions probe_options(const PodConfig& pod, const ModelConfig& config) {
    ExchangeOptions options = make_exchange_options(pod, config);
    options.limits.max_rows = kMostProbeRows;
    options.hold_timeout = Nanoseconds(0);  // A lost server ends the measurement.
    return options;
}

NodeIdentity measuring_identity(const PodConfig& pod, const std::string& node) {
    NodeIdentity identity = make_identity(pod, 0, node);
    identity.transport += ", measuring";
    return identity;
}

std::vector<std::string> rails_of(const std::string& device,
                                  const std::vector<std::string>& rails) {
    return rails.empty() ? std::vector<std::string>{device} : rails;
}

Result<std::unique_ptr<MeasuringSession>> MeasuringSession::open(
    const PodConfig& pod, std::span<const Address> addresses,
    const std::vector<std::vector<Shard>>& shards) {
    auto session = std::make_unique<Session>();
    K3POD_TRY(session->open(pod, addresses, shards));
    return std::unique_ptr<MeasuringSession>(std::move(session));
}

}  // namespace k3pod
