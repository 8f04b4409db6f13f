#include "k3pod/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace k3pod {
namespace {

TEST(Log, a_message_cannot_forge_a_line_or_move_the_cursor) {
    testing::internal::CaptureStderr();
    log::info("node a\n2026-01-01 error station | all is lost\x1b[2J");
    const std::string written = testing::internal::GetCapturedStderr();
    EXPECT_THAT(written,
                testing::EndsWith("| node a\\n2026-01-01 error station | all is lost\\x1b[2J\n"));
    EXPECT_EQ(written.find('\n'), written.size() - 1);
}

TEST(Log, names_the_role_in_every_line) {
    log::init("spark-1", log::Level::kWarning);
    testing::internal::CaptureStderr();
    log::info("below the level");
    log::warning("seen {} %v");
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::EndsWith("warning spark-1 | seen {} %v\n"));
    log::init("k3pod", log::Level::kInfo);
}

}  // namespace
}  // namespace k3pod
