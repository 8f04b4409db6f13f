// Tokens per second and time to first token of the tiny pod, alone and with many streams. One JSON
// line per number of streams. Needs a machine with nothing else to do; quote ratios.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/support/report.h"
#include "model_ceiling.h"
#include "pod_process.h"
#include "stream_client.h"

namespace k3pod::bench {
namespace {

struct Arguments {
    PodOptions pod;
    std::vector<int> streams{1, 16};
    int max_tokens = 200;
    int repeats = 5;
};

struct Round {
    double tokens_per_s = 0;         // all streams together, first token to last
    double decode_tokens_per_s = 0;  // while every stream decodes: no prompt in any step
    std::vector<double> ttft_s;      // one per stream
};

double decode_rate_of(const std::vector<StreamTimes>& streams) {
    double begin = 0, end = 1e9;
    for (const StreamTimes& stream : streams) {
        begin = std::max(begin, stream.token_s.front());
        end = std::min(end, stream.token_s.back());
    }
    int64_t num_tokens = 0;
    for (const StreamTimes& stream : streams) {
        num_tokens += std::ranges::count_if(stream.token_s,
                                            [&](double at) { return at > begin && at <= end; });
    }
    return static_cast<double>(num_tokens) / (end - begin);
}

Round run_round(int port, int streams, int max_tokens) {
    std::vector<StreamTimes> times(static_cast<size_t>(streams));
    std::vector<std::thread> clients;
    for (int i = 0; i < streams; ++i) {
        clients.emplace_back([&, i] {
            times[static_cast<size_t>(i)] =
                run_stream({port, fmt::format("What is {} + {}?", 11 + i, 7), max_tokens});
        });
    }
    for (std::thread& client : clients) client.join();
    Round round;
    double first = 1e9, last = 0;
    for (const StreamTimes& stream : times) {
        if (!stream.is_complete) {
            std::fprintf(stderr, "a stream failed: %s\n", stream.error.c_str());
            std::exit(1);
        }
        round.ttft_s.push_back(stream.ttft_s);
        first = std::min(first, stream.token_s.front());
        last = std::max(last, stream.token_s.back());
    }
    round.tokens_per_s = streams * (max_tokens - 1) / (last - first);
    round.decode_tokens_per_s = decode_rate_of(times);
    return round;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void measure(const PodProcess& pod, const Arguments& arguments, int streams) {
    run_round(pod.port(), streams, 20);  // warm up
    std::vector<double> rates, decode_rates, ttft;
    for (int i = 0; i < arguments.repeats; ++i) {
        const Round round = run_round(pod.port(), streams, arguments.max_tokens);
        rates.push_back(round.tokens_per_s);
        decode_rates.push_back(round.decode_tokens_per_s);
        ttft.insert(ttft.end(), round.ttft_s.begin(), round.ttft_s.end());
    }
    std::sort(rates.begin(), rates.end());
    std::sort(ttft.begin(), ttft.end());
    const ModelRates ceiling = measure_model(streams, arguments.max_tokens);
    nlohmann::ordered_json line = report_header("serve");
    line["experts"] = arguments.pod.num_experts;
    line["mode"] = arguments.pod.mode;
    line["transport"] = arguments.pod.transport;
    line["streams"] = streams;
    line["tokens_each"] = arguments.max_tokens;
    line["tokens_per_s"] = {
        {"median", median(rates)}, {"min", rates.front()}, {"max", rates.back()}};
    const double decode_rate = median(decode_rates);
    line["decode_tokens_per_s"] = decode_rate;
    line["ttft_ms"] = {{"median", median(ttft) * 1e3}, {"max", ttft.back() * 1e3}};
    line["ceiling_tokens_per_s"] = ceiling.whole;
    line["share_of_ceiling"] = decode_rate / ceiling.whole;
    line["ceiling"] = "the bare model on one thread in this process, same batch and length";
    line["station_part_tokens_per_s"] = ceiling.station_part;
    line["share_of_station_part"] = decode_rate / ceiling.station_part;
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
}

}  // namespace
}  // namespace k3pod::bench

int main(int argc, char** argv) {
    using namespace k3pod::bench;
    Arguments arguments;
    CLI::App app("Tokens per second and time to first token of the tiny pod; prints JSON lines");
    app.add_option("--streams", arguments.streams, "Numbers of concurrent streams")
        ->capture_default_str();
    app.add_option("--experts", arguments.pod.num_experts, "Expert servers")
        ->check(CLI::Range(1, 8));
    app.add_option("--mode", arguments.pod.mode, "whole or sliced")
        ->check(CLI::IsMember({"whole", "sliced"}));
    app.add_option("--transport", arguments.pod.transport, "shm or tcp")
        ->check(CLI::IsMember({"shm", "tcp"}));
    app.add_option("--tokens", arguments.max_tokens, "Tokens per stream")
        ->check(CLI::Range(2, 4000));
    app.add_option("--repeats", arguments.repeats, "Rounds; the median counts")
        ->check(CLI::Range(1, 1000));
    CLI11_PARSE(app, argc, argv);
    const PodProcess pod(arguments.pod);
    for (const int streams : arguments.streams) measure(pod, arguments, streams);
    return 0;
}
