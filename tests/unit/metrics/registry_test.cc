#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "k3pod/metrics/metrics.h"

namespace k3pod {
namespace {

using testing::HasSubstr;

TEST(MetricsRegistry, exposes_counter_with_labels_and_help) {
    MetricsRegistry registry;
    registry.counter("vllm:prompt_tokens_total", "Prompt tokens.", {{"model_name", "k3"}}).add(3);
    const std::string text = registry.expose();
    EXPECT_THAT(text, HasSubstr("# HELP vllm:prompt_tokens_total Prompt tokens.\n"));
    EXPECT_THAT(text, HasSubstr("# TYPE vllm:prompt_tokens_total counter\n"));
    EXPECT_THAT(text, HasSubstr("vllm:prompt_tokens_total{model_name=\"k3\"} 3\n"));
}

TEST(MetricsRegistry, same_name_and_labels_give_the_same_object) {
    MetricsRegistry registry;
    Counter& first = registry.counter("k3pod_frames_total", "Frames.", {{"node", "a"}});
    Counter& again = registry.counter("k3pod_frames_total", "Frames.", {{"node", "a"}});
    Counter& other = registry.counter("k3pod_frames_total", "Frames.", {{"node", "b"}});
    first.add();
    EXPECT_EQ(&first, &again);
    EXPECT_NE(&first, &other);
    EXPECT_EQ(again.value(), 1);
    EXPECT_EQ(other.value(), 0);
}

TEST(MetricsRegistry, gauge_can_be_set_and_moved) {
    MetricsRegistry registry;
    Gauge& gauge = registry.gauge("k3pod_rows", "Rows.");
    gauge.set(5);
    gauge.add(-2);
    EXPECT_EQ(gauge.value(), 3);
}

TEST(MetricsRegistry, histogram_counts_into_cumulative_buckets) {
    MetricsRegistry registry;
    Histogram& times = registry.histogram("k3pod_step_seconds", "Step.", {0.1, 1});
    times.observe(0.05);
    times.observe(0.5);
    times.observe(7);
    const std::string text = registry.expose();
    EXPECT_THAT(text, HasSubstr("k3pod_step_seconds_bucket{le=\"0.1\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("k3pod_step_seconds_bucket{le=\"1\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("k3pod_step_seconds_bucket{le=\"+Inf\"} 3\n"));
    EXPECT_THAT(text, HasSubstr("k3pod_step_seconds_count 3\n"));
}

TEST(MetricsRegistry, two_scrapers_see_the_same_counters) {
    MetricsRegistry registry;
    registry.counter("k3pod_frames_total", "Frames.").add(41);
    for (int scrape = 0; scrape < 3; ++scrape) {
        EXPECT_THAT(registry.expose(), HasSubstr("k3pod_frames_total 41\n"));
    }
}

TEST(MetricsRegistry, text_passes_a_format_check) {
    MetricsRegistry registry;
    registry.counter("vllm:request_success_total", "Done.", {{"finished_reason", "a\"b\\c\nd"}});
    registry.histogram("k3pod_step_seconds", "Step.", exchange_buckets()).observe(1e-5);
    const std::regex sample(
        R"re([a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-zA-Z_][a-zA-Z0-9_]*="([^"\\]|\\.)*"(,[a-zA-Z_][a-zA-Z0-9_]*="([^"\\]|\\.)*")*\})? [-+0-9.eE]+)re");
    std::istringstream lines(registry.expose());
    int samples = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.rfind("# HELP ", 0) == 0 || line.rfind("# TYPE ", 0) == 0) continue;
        EXPECT_TRUE(std::regex_match(line, sample)) << line;
        ++samples;
    }
    EXPECT_GT(samples, 20);
}

TEST(MetricsRegistry, names_are_sorted_and_hold_each_family_once) {
    MetricsRegistry registry;
    registry.gauge("b_rows", "Rows.", {{"node", "x"}});
    registry.gauge("b_rows", "Rows.", {{"node", "y"}});
    registry.counter("a_total", "A.");
    const std::vector<std::string> names = registry.names();
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
    EXPECT_EQ(std::count(names.begin(), names.end(), "b_rows"), 1);
    EXPECT_EQ(std::count(names.begin(), names.end(), "a_total"), 1);
    EXPECT_EQ(std::count(names.begin(), names.end(), "process_open_fds"), 1);
}

TEST(MetricsRegistry, memory_gauges_come_from_the_operating_system) {
    const std::string text = MetricsRegistry().expose();
    for (const char* name :
         {"k3pod_node_memory_total_bytes{source=\"os\"} ",
          "k3pod_node_memory_available_bytes{source=\"os\"} ", "process_resident_memory_bytes ",
          "process_open_fds ", "process_start_time_seconds "}) {
        const size_t at = text.find(std::string("\n") + name);
        ASSERT_NE(at, std::string::npos) << name;
        EXPECT_GT(std::strtod(text.c_str() + at + 1 + std::string(name).size(), nullptr), 0)
            << name;
    }
}

TEST(MetricsRegistryDeath, aborts_when_one_name_is_used_for_two_types) {
    MetricsRegistry registry;
    registry.counter("k3pod_rows", "Rows.");
    EXPECT_DEATH(registry.gauge("k3pod_rows", "Rows."), "used for two types");
}

TEST(MetricsRegistryDeath, aborts_on_an_illegal_name) {
    MetricsRegistry registry;
    EXPECT_DEATH(registry.counter("k3pod rows", "Rows."), "legal metric and label names");
}

}  // namespace
}  // namespace k3pod
