// docs/metrics.md against the source: every metric has a row, and every row a metric.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "k3pod/metrics/metrics.h"

namespace k3pod {
namespace {

std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::set<std::string> all_matches(const std::string& text, const std::regex& pattern) {
    std::set<std::string> found;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
        found.insert((*it)[1]);
    }
    return found;
}

// The first column of every table.
std::set<std::string> documented_names() {
    const std::string text = read_file(K3POD_SOURCE_DIR "/docs/metrics.md");
    return all_matches(text,
                       std::regex("\n\\| `([a-z0-9_:]+)` \\| (?:counter|gauge|histogram) \\|"));
}

// String literals in src/ that have the form of a metric's name.
std::set<std::string> names_in_source() {
    const std::regex literal("\"((?:vllm:|k3pod_|http_|process_)[a-z0-9_]+)\"");
    std::set<std::string> names;
    const auto options = std::filesystem::directory_options::follow_directory_symlink;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(K3POD_SOURCE_DIR "/src", options)) {
        if (entry.path().extension() != ".cc") continue;
        names.merge(all_matches(read_file(entry.path()), literal));
    }
    return names;
}

TEST(MetricsDocs, table_and_source_name_the_same_metrics) {
    const std::set<std::string> documented = documented_names();
    ASSERT_GT(documented.size(), 20u);
    EXPECT_THAT(documented, testing::ContainerEq(names_in_source()));
}

TEST(MetricsDocs, what_a_registry_brings_along_is_in_the_table) {
    const std::set<std::string> documented = documented_names();
    for (const std::string& name : MetricsRegistry().names()) {
        EXPECT_EQ(documented.count(name), 1u) << name;
    }
}

}  // namespace
}  // namespace k3pod
