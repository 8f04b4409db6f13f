// k3pod fabric link (E2): what each rail to each server carries, alone and all at once.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <utility>

#include "fabric_commands.h"
#include "k3pod/fabric/link.h"
#include "measured_constants.h"
#include "measuring_session.h"
#include "model_folder.h"
#include "percentiles.h"
#include "table.h"

namespace k3pod {
namespace {

using Json = nlohmann::ordered_json;

constexpr Nanoseconds kBulkTime = std::chrono::seconds(1);
constexpr int64_t kSmallBytes = 8;
constexpr int64_t kRowBytes = 7168;

struct LinkResult {
    std::string server, rail;  // the station's
    Percentiles small_us, row_us;
    double alone_bits_per_s = 0, together_bits_per_s = 0;
};

struct Rails {
    std::vector<std::string> names;
    std::vector<std::unique_ptr<LinkProbe>> probes;
    std::vector<Address> addresses;  // as a session hands them over: no exchange, then the rails
};

Result<Rails> open_rails(const PodConfig& pod) {
    Rails rails{
        .names = rails_of(pod.station_device, pod.station_rails), .probes = {}, .addresses = {{}}};
    for (const std::string& rail : rails.names) {
        K3POD_ASSIGN(auto probe, LinkProbe::create(make_transport_factory(pod, rail)));
        rails.addresses.push_back(probe->local_address());
        rails.probes.push_back(std::move(probe));
    }
    return rails;
}

// One rail to every server, one after the other.
Result<std::vector<LinkResult>> measure_rail(LinkProbe& probe, const std::string& rail,
                                             const std::vector<MeasuredNode>& nodes,
                                             int32_t rounds) {
    std::vector<LinkResult> results;
    for (int32_t i = 0; std::cmp_less(i, nodes.size()); ++i) {
        LinkResult& result = results.emplace_back();
        result.server = nodes[static_cast<size_t>(i)].name;
        result.rail = rail.empty() ? "any" : rail;
        K3POD_TRY(probe.round_trips(i, kRowBytes, rounds / 4).status());
        K3POD_ASSIGN(auto small, probe.round_trips(i, kSmallBytes, rounds));
        K3POD_ASSIGN(auto row, probe.round_trips(i, kRowBytes, rounds));
        result.small_us = percentiles_of(small);
        result.row_us = percentiles_of(row);
        K3POD_ASSIGN(const auto rate, probe.bandwidth(std::span(&i, 1), kBulkTime));
        result.alone_bits_per_s = rate.front() * 8;
    }
    return results;
}

// Every rail to every server at once, a thread each. `results` are rail by rail.
Status measure_together(const Rails& rails, std::vector<LinkResult>& results) {
    const size_t num_servers = results.size() / rails.probes.size();
    std::vector<int32_t> all(num_servers);
    std::iota(all.begin(), all.end(), 0);
    std::vector<Result<std::vector<double>>> rates(rails.probes.size(), unavailable("not run"));
    std::vector<std::thread> threads;
    for (size_t rail = 0; rail < rates.size(); ++rail) {
        threads.emplace_back(
            [&, rail] { rates[rail] = rails.probes[rail]->bandwidth(all, kBulkTime); });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t rail = 0; rail < rates.size(); ++rail) {
        if (!rates[rail]) return rates[rail].status();
        for (size_t i = 0; i < num_servers; ++i) {
            results[rail * num_servers + i].together_bits_per_s = (*rates[rail])[i] * 8;
        }
    }
    return Status::ok();
}

double sum_together(const std::vector<LinkResult>& results) {
    double sum = 0;
    for (const LinkResult& result : results) sum += result.together_bits_per_s;
    return sum;
}

Json to_json(const Percentiles& p) {
    return {{"p50", p.p50}, {"p99", p.p99}, {"max", p.max}};
}

void print(const std::vector<LinkResult>& results, bool json) {
    if (json) {
        Json links = Json::array();
        for (const LinkResult& r : results) {
            links.push_back({{"server", r.server},
                             {"rail", r.rail},
                             {"round_trip_8_bytes_us", to_json(r.small_us)},
                             {"round_trip_7168_bytes_us", to_json(r.row_us)},
                             {"alone_gigabits_per_s", r.alone_bits_per_s / 1e9},
                             {"together_gigabits_per_s", r.together_bits_per_s / 1e9}});
        }
        const Json all{{"links", std::move(links)},
                       {"together_gigabits_per_s", sum_together(results) / 1e9}};
        return fmt::print("{}\n", all.dump(2));
    }
    TextTable table({"server", "rail", "8 B p50", "p99", "max us", "7 KiB p50", "p99", "max us",
                     "alone Gb/s", "at once Gb/s"});
    table.left(1);
    const auto us = [](double value) { return fmt::format("{:.1f}", value); };
    for (const LinkResult& r : results) {
        table.add({r.server, r.rail, us(r.small_us.p50), us(r.small_us.p99), us(r.small_us.max),
                   us(r.row_us.p50), us(r.row_us.p99), us(r.row_us.max),
                   fmt::format("{:.2f}", r.alone_bits_per_s / 1e9),
                   fmt::format("{:.2f}", r.together_bits_per_s / 1e9)});
    }
    fmt::print("{}all rails to all servers at once: {:.2f} Gb/s\n", table.text(),
               sum_together(results) / 1e9);
}

}  // namespace

Status run_fabric_link(const PodConfig& pod, const FabricOptions& options) {
    K3POD_ASSIGN(Rails rails, open_rails(pod));
    K3POD_ASSIGN(const auto session,
                 MeasuringSession::open(pod, rails.addresses,
                                        std::vector<std::vector<Shard>>(pod.experts.size())));
    std::vector<LinkResult> results;
    for (size_t rail = 0; rail < rails.probes.size(); ++rail) {
        for (const MeasuredNode& node : session->nodes()) {
            if (node.addresses.size() != rails.addresses.size()) {
                return invalid_argument(fmt::format(
                    "{} has {} rails and the station {}; give both as many in the pod file",
                    node.name, node.addresses.size() - 1, rails.probes.size()));
            }
            K3POD_TRY(rails.probes[rail]->connect(node.addresses[rail + 1], node.name));
        }
        K3POD_ASSIGN(const auto measured, measure_rail(*rails.probes[rail], rails.names[rail],
                                                       session->nodes(), options.rounds));
        results.insert(results.end(), measured.begin(), measured.end());
    }
    K3POD_TRY(measure_together(rails, results));
    print(results, options.json);
    std::vector<double> alone;
    for (const LinkResult& result : results) alone.push_back(result.alone_bits_per_s);
    return write_measured({.round_trip_s = {},
                           .server_bits_per_s = percentiles_of(alone).p50,
                           .station_bits_per_s = sum_together(results),
                           .source = "measured by k3pod fabric link"},
                          options);
}

}  // namespace k3pod
