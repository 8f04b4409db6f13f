#include "k3pod/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

namespace k3pod {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
  protected:
    FileTest() { fs::create_directories(dir); }
    ~FileTest() override { fs::remove_all(dir); }

    fs::path write(const std::string& name, const std::string& text) const {
        std::ofstream(dir / name, std::ios::binary) << text;
        return dir / name;
    }

    const fs::path dir = fs::path(::testing::TempDir()) /
                         ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(FileTest, gives_the_text_of_a_file_without_a_byte_order_mark) {
    EXPECT_EQ(read_text_file(write("plain", "a\nb")).value(), "a\nb");
    EXPECT_EQ(read_text_file(write("marked", "\xef\xbb\xbf{}")).value(), "{}");
    EXPECT_EQ(read_text_file(write("twice", "\xef\xbb\xbf\xef\xbb\xbf{}")).value(),
              "\xef\xbb\xbf{}");
    EXPECT_EQ(read_text_file(write("empty", "")).value(), "");
}

TEST_F(FileTest, refuses_what_is_not_a_regular_file_by_its_kind_and_without_waiting) {
    const fs::path pipe = dir / "pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(read_text_file(pipe).status().to_string(),
              "data_loss: " + pipe.string() + " is a pipe, expected a regular file");
    EXPECT_EQ(read_text_file(dir).status().to_string(),
              "data_loss: " + dir.string() + " is a folder, expected a regular file");
    EXPECT_EQ(read_text_file("/dev/zero").status().to_string(),
              "data_loss: /dev/zero is a device, expected a regular file");
}

// A hole of five gibibytes, which takes no room on the disk.
TEST_F(FileTest, reads_beyond_four_gibibytes) {
    constexpr int64_t kOffset = (int64_t{5} << 30) + 12345;
    const fs::path path = write("sparse", "head");
    fs::resize_file(path, static_cast<uintmax_t>(kOffset));
    std::ofstream(path, std::ios::binary | std::ios::app) << "tail";
    const auto file = FileReader::open(path).value();
    EXPECT_EQ(file.size_bytes(), kOffset + 4);
    std::string text(4, '\0');
    ASSERT_TRUE(file.read_once(kOffset, std::as_writable_bytes(std::span(text))).is_ok());
    EXPECT_EQ(text, "tail");
    ASSERT_TRUE(file.read_once(kOffset - 2, std::as_writable_bytes(std::span(text))).is_ok());
    EXPECT_EQ(text, std::string("\0\0ta", 4));
}

TEST_F(FileTest, names_a_missing_file_with_the_reason) {
    EXPECT_EQ(read_text_file("/nowhere/file").status().to_string(),
              "not_found: cannot read /nowhere/file: No such file or directory");
}

TEST_F(FileTest, refuses_a_file_over_the_limit_with_both_sizes) {
    const fs::path file = write("large", "12345");
    EXPECT_EQ(read_text_file(file, 5).value(), "12345");
    EXPECT_EQ(read_text_file(file, 4).status().to_string(),
              "invalid_argument: " + file.string() +
                  " has 5 bytes, the limit is 4: it is not the file that belongs there");
}

}  // namespace
}  // namespace k3pod
