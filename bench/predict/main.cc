// What predict says beside what a pod does, on the demo model with throttled servers and late
// replies; the constants that it measures can be written for `k3pod predict --constants`.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

#include "bench/support/report.h"
#include "tests/support/predict_agreement.h"

namespace {

using k3pod::testing::AgreementCase;

void print_case(const AgreementCase& one, int rounds) {
    nlohmann::ordered_json line = k3pod::bench::report_header("predict");
    line["case"] = one.mode;
    line["delay_ms"] = one.delay_s * 1e3;
    line["rounds"] = rounds;
    line["predicted_ms"] = one.predicted_s * 1e3;
    line["measured_ms"] = one.measured_s * 1e3;
    line["ratio"] = one.predicted_s / one.measured_s;
    std::printf("%s\n", line.dump().c_str());
}

bool write_file(const std::string& path, const std::string& text) {
    std::ofstream out(path);
    out << text;
    out.close();
    if (out) return true;
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("predicted and measured time per token of the demo model");
    int rounds = 10;
    std::string out;
    app.add_option("--rounds", rounds, "Times that every case has its turn")
        ->default_val(10)
        ->check(CLI::Range(1, 1000));
    app.add_option("--out", out, "Write the measured constants here");
    CLI11_PARSE(app, argc, argv);
    const auto agreement = k3pod::testing::measure_agreement(rounds);
    if (!agreement) {
        std::fprintf(stderr, "%s\n", agreement.status().message().c_str());
        return 1;
    }
    for (const AgreementCase& one : agreement->cases) print_case(one, rounds);
    if (out.empty()) return 0;
    return write_file(out, k3pod::to_toml(agreement->constants)) ? 0 : 1;
}
