// A row of 7 KiB to 1, 2, 4 and 8 expert servers and back, without expert work. One JSON line per
// case. Needs two cores with nothing else to do; --gpu needs a GPU and a core for each holder.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/exchange/gpu_hand_off.h"
#include "bench/exchange/mailbox.h"
#include "bench/exchange/perftest.h"
#include "bench/exchange/plan.h"
#include "bench/exchange/raw_echo.h"
#include "bench/exchange/real_exchange.h"
#include "bench/exchange/station_alone.h"
#include "bench/support/cores.h"
#include "bench/support/private_network.h"
#include "bench/support/report.h"
#include "bench/support/samples.h"
#include "k3pod/device/cuda.h"

namespace k3pod::bench {
namespace {

struct Arguments {
    std::vector<std::string> transports{"shm", "tcp"};
    std::vector<int> servers{1, 2, 4, 8};
    Plan plan;
    bool gpu = false;
};

struct Yardsticks {
    double perftest_us = 0;  // one way, 0 without ucx_perftest
    double mailbox_us = 0;   // there and back, shm only
};

double lowest_p50(const std::vector<Percentiles>& runs) {
    return best_of(runs).best.p50;
}

void print(nlohmann::ordered_json line, const std::string& layout,
           const std::vector<Percentiles>& runs, const Yardsticks& yardsticks) {
    const BestOfRuns best = best_of(runs);
    line["layout"] = layout;
    line["p50_us"] = best.best.p50;
    line["p99_us"] = best.best.p99;
    line["median_p50_us"] = best.median_p50;
    line["spread"] = best.spread;
    if (yardsticks.perftest_us > 0) {
        line["perftest_round_trip_us"] = 2 * yardsticks.perftest_us;
        line["times_perftest"] = best.best.p50 / (2 * yardsticks.perftest_us);
    }
    if (yardsticks.mailbox_us > 0) {
        line["ceiling_us"] = yardsticks.mailbox_us;
        line["times_ceiling"] = best.best.p50 / yardsticks.mailbox_us;
        line["ceiling"] = "bare shared-memory mailboxes, copied in and out on both sides";
    }
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
}

void measure(Plan plan, const std::vector<int>& servers, bool is_private) {
    const std::vector<double> perftest = measure_perftest(plan);
    Yardsticks yardsticks;
    if (!perftest.empty()) {
        yardsticks.perftest_us = *std::min_element(perftest.begin(), perftest.end());
    }
    for (const int num_servers : servers) {
        plan.num_servers = num_servers;
        nlohmann::ordered_json line = report_header("exchange");
        line["transport"] = kind_name(plan.kind);
        line["servers"] = num_servers;
        line["runs"] = plan.num_runs;
        line["rounds"] = plan.rounds;
        line["method"] =
            "the best of several short runs, for ucx_perftest too (it leaves the bytes unread)";
        line["private_network"] = is_private;
        line["core_to_core_us"] = line_round_trip_us(0, 1);
        const bool is_shm = plan.kind == TransportKind::kShm;
        yardsticks.mailbox_us = is_shm ? lowest_p50(measure_mailboxes(plan)) : 0;
        print(line, "transport, one thread answers for all", measure_raw(plan), yardsticks);
        print(line, "exchange, a process each", measure_exchange(plan), yardsticks);
        print(line, "station alone, answered at once", measure_station_alone(plan), {});
    }
}

// The hand-off of a GPU's graph, with bare flags between the same two in the same run.
Status measure_gpu() {
    K3POD_ASSIGN(const CudaProperties gpu, cuda_properties(0));
    GpuPlan plan;
    K3POD_ASSIGN(const auto flag_runs, measure_bare_flag(plan, 0));
    K3POD_ASSIGN(const auto row_runs, measure_bare_flag(plan, static_cast<int>(kRowBytes)));
    const double flag_us = lowest_p50(flag_runs);
    const double row_us = lowest_p50(row_runs);
    for (const int num_holders : {1, 8}) {
        plan.num_holders = num_holders;
        K3POD_ASSIGN(const auto runs, measure_gpu_hand_off(plan));
        const BestOfRuns best = best_of(runs);
        nlohmann::ordered_json line = report_header("exchange_gpu");
        line["gpu"] = gpu.name;
        line["holders"] = num_holders;
        line["exchanges"] = "92 in one graph, a kernel that dispatches and one that combines each";
        line["p50_us"] = best.best.p50;
        line["p99_us"] = best.best.p99;
        line["spread"] = best.spread;
        line["bare_flag_us"] = flag_us;
        line["ceiling_us"] = row_us;
        line["ceiling"] = "one kernel, one thread: 7 KiB out, a flag each way, 7 KiB in";
        line["times_ceiling"] = best.best.p50 / row_us;
        std::printf("%s\n", line.dump().c_str());
    }
    return Status::ok();
}

}  // namespace
}  // namespace k3pod::bench

int main(int argc, char** argv) {
    using namespace k3pod;
    bench::Arguments arguments;
    CLI::App app("7 KiB to each expert server and back, without expert work; prints JSON lines");
    app.add_option("--transport", arguments.transports, "shm, tcp")
        ->check(CLI::IsMember({"shm", "tcp"}));
    app.add_option("--servers", arguments.servers, "Numbers of expert servers");
    app.add_option("--runs", arguments.plan.num_runs, "Short runs; the best counts")
        ->check(CLI::Range(1, 1000));
    app.add_option("--rounds", arguments.plan.rounds, "Exchanges in a run")
        ->check(CLI::Range(100, 10000000));
    app.add_flag("--gpu", arguments.gpu, "Instead: a GPU's hand-off to 1 and 8 holders here");
    CLI11_PARSE(app, argc, argv);
    if (arguments.gpu) {
        const Status done = bench::measure_gpu();
        if (!done.is_ok()) std::fprintf(stderr, "bench_exchange: %s\n", done.message().c_str());
        return done.is_ok() ? 0 : 1;
    }
    const bool is_private = bench::enter_private_network();
    for (const std::string& transport : arguments.transports) {
        arguments.plan.kind = transport == "tcp" ? TransportKind::kTcp : TransportKind::kShm;
        bench::measure(arguments.plan, arguments.servers, is_private);
    }
    return 0;
}
