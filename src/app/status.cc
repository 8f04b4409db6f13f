// `k3pod status`: the placement that a running pod applies, read back from the station and from
// every expert server, and compared.

#include <fmt/format.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdio>
#include <limits>

#include "commands.h"
#include "k3pod/base/file.h"
#include "k3pod/control/control.h"
#include "k3pod/placement/placement.h"
#include "table.h"

namespace k3pod {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr auto kTimeout = std::chrono::seconds(10);

// One GET of the station, each phase within kTimeout.
class StationReader {
  public:
    explicit StationReader(const std::string& listen) : address_(listen), stream_(io_) {}

    Result<std::string> get(std::string_view path) {
        const size_t colon = address_.rfind(':');
        std::string host = address_.substr(0, colon);
        if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
        if (host == "0.0.0.0" || host == "::") host = "127.0.0.1";
        error_code error;
        asio::ip::tcp::resolver resolver(io_);
        const auto addresses = resolver.resolve(host, address_.substr(colon + 1), error);
        if (!error) error = run([&](auto done) { stream_.async_connect(addresses, done); });
        http::request<http::empty_body> request{http::verb::get, std::string(path), 11};
        request.set(http::field::host, address_);
        if (!error) error = run([&](auto done) { http::async_write(stream_, request, done); });
        http::response_parser<http::string_body> parser;
        parser.body_limit(std::numeric_limits<uint64_t>::max());
        beast::flat_buffer buffer;
        if (!error)
            error = run([&](auto done) { http::async_read(stream_, buffer, parser, done); });
        if (error) {
            return unavailable(fmt::format("cannot read {} of the station at {}: {}", path,
                                           address_, error.message()));
        }
        if (parser.get().result() != http::status::ok) {
            return unavailable(fmt::format("the station at {} answered {} to {}", address_,
                                           parser.get().result_int(), path));
        }
        return parser.get().body();
    }

  private:
    template <class Start>
    error_code run(Start start) {
        error_code result;
        stream_.expires_after(kTimeout);
        start([&result](error_code error, auto&&...) { result = error; });
        io_.restart();
        io_.run();
        return result;
    }

    const std::string address_;
    asio::io_context io_;
    beast::tcp_stream stream_;
};

int64_t num_columns(std::span<const Shard> shards) {
    int64_t columns = 0;
    for (const Shard& shard : shards) columns += shard.end - shard.begin;
    return columns;
}

// The shards that a node should have; none for a node that is no holder.
std::vector<Shard> planned_shards(const Placement& placement, const std::string& node) {
    for (size_t h = 0; h < placement.holders.size(); ++h) {
        if (placement.holders[h] == node) return placement.shards_of(static_cast<int32_t>(h));
    }
    return {};
}

// "loading 12.3 of 104.5 GB, 2.41 GB/s, 38 s left"
std::string describe_phase(const NodeStatus& status) {
    const std::string phase = server_phase_name(status.phase);
    if (status.phase != ServerPhase::kLoading || status.total_bytes == 0) return phase;
    const auto loaded = static_cast<double>(status.loaded_bytes);
    const auto total = static_cast<double>(status.total_bytes);
    std::string text = fmt::format("{} {:.1f} of {:.1f} GB", phase, loaded / 1e9, total / 1e9);
    if (status.load_bytes_per_s > 0) {
        text += fmt::format(", {:.2f} GB/s, {:.0f} s left", status.load_bytes_per_s / 1e9,
                            (total - loaded) / status.load_bytes_per_s);
    }
    return text;
}

// One row of the table; false when the node does not apply the placement.
bool add_node(const ExpertConfig& node, const Placement& placement, TextTable& table) {
    const std::vector<Shard> planned = planned_shards(placement, node.name);
    const auto status = read_node_status(node.control, kTimeout);
    if (!status) {
        table.add({node.name, "-", "-", "-", "-", status.status().message()});
        return false;
    }
    const bool is_equal = status->shards == planned && status->epoch == placement.epoch;
    table.add({node.name, describe_phase(*status), fmt::format("{}", status->epoch),
               fmt::format("{}", status->shards.size()),
               fmt::format("{}", num_columns(status->shards)),
               is_equal ? "as the station says"
                        : fmt::format("differs: {} shards of epoch {} are planned", planned.size(),
                                      placement.epoch)});
    return is_equal;
}

}  // namespace

Status run_status(const PodConfig& pod, const StatusOptions& options) {
    StationReader station(pod.station.listen);
    K3POD_ASSIGN(const std::string applied, station.get(kPlacementPath));
    auto placement = parse_placement(applied);
    if (!placement) return placement.status().with_context(std::string(kPlacementPath));
    bool is_equal = true;
    std::string text;
    if (!options.placement.empty()) {
        K3POD_ASSIGN(const std::string planned, read_text_file(options.placement));
        is_equal = planned == applied;
        text = fmt::format("station: the placement {} {}\n",
                           is_equal ? "is byte for byte that of" : "is not that of",
                           options.placement);
    }
    TextTable table({"node", "phase", "epoch", "shards", "columns", "placement"});
    table.left(1).left(5);
    for (const ExpertConfig& node : pod.experts) is_equal &= add_node(node, *placement, table);
    text += table.text();
    std::fputs(text.c_str(), stdout);
    if (is_equal) return Status::ok();
    return failed_precondition("the pod does not apply the placement on every node");
}

}  // namespace k3pod
