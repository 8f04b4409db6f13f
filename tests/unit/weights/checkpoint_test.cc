#include "k3pod/weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/checkpoint_fixture.h"

namespace k3pod {
namespace {

using k3pod::testing::TempFolder;
using k3pod::testing::write_file;
using k3pod::testing::write_index;
using k3pod::testing::write_shard;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kA[] = "a.safetensors";
constexpr char kB[] = "b.safetensors";

// A folder with the shards a (tensor x) and b (tensors y, z).
class CheckpointTest : public ::testing::Test {
  protected:
    CheckpointTest() {
        write_shard(file(kA),
                    R"({"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}})", 24);
        write_shard(file(kB),
                    R"({"__metadata__": {"format": "pt"},
                        "z": {"dtype": "U8", "shape": [], "data_offsets": [16, 17]},
                        "y": {"dtype": "BF16", "shape": [8], "data_offsets": [0, 16]}})",
                    17);
        write_index(dir(), {{"x", kA}, {"y", kB}, {"z", kB}});
    }

    const std::filesystem::path& dir() const { return folder_.path(); }
    std::filesystem::path file(const std::string& name) const { return dir() / name; }

    std::string refusal() const {
        const auto checkpoint = Checkpoint::open(dir());
        return checkpoint ? "accepted" : checkpoint.status().to_string();
    }
    // The refusal when shard a has this header and payload; the path in front is taken off.
    std::string refusal_of_a(const std::string& header, int64_t payload_bytes) const {
        write_shard(file(kA), header, payload_bytes);
        const std::string text = refusal();
        const std::string prefix = "data_loss: " + file(kA).string() + ": ";
        return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
    }

  private:
    TempFolder folder_;
};

TEST_F(CheckpointTest, opens_every_tensor_of_every_shard) {
    const auto checkpoint = Checkpoint::open(dir());
    ASSERT_TRUE(checkpoint) << checkpoint.status().to_string();
    EXPECT_EQ(checkpoint->num_tensors(), 3);
    EXPECT_EQ(checkpoint->total_bytes(), 41);
    const TensorInfo* x = checkpoint->find("x");
    ASSERT_NE(x, nullptr);
    EXPECT_EQ(x->name, "x");
    EXPECT_EQ(x->dtype, DType::kF32);
    EXPECT_EQ(std::vector<int64_t>(x->shape.begin(), x->shape.end()), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(x->offset_bytes, 8 + 65);
    EXPECT_EQ(x->size_bytes, 24);
    EXPECT_EQ(checkpoint->file_path(x->file), file(kA));
    const TensorInfo* z = checkpoint->find("z");
    ASSERT_NE(z, nullptr);
    EXPECT_TRUE(z->shape.empty());
    EXPECT_EQ(z->size_bytes, 1);
    EXPECT_EQ(checkpoint->find("w"), nullptr);
}

TEST_F(CheckpointTest, reads_a_part_of_a_tensor) {
    write_file(file(kA),
               std::string("\x41\0\0\0\0\0\0\0", 8) +
                   R"({"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}})" +
                   "....abcdefgh............");
    const auto checkpoint = Checkpoint::open(dir());
    ASSERT_TRUE(checkpoint) << checkpoint.status().to_string();
    std::string bytes(8, '\0');
    const Status status =
        checkpoint->read(*checkpoint->find("x"), 4, std::as_writable_bytes(std::span(bytes)));
    EXPECT_TRUE(status) << status.to_string();
    EXPECT_EQ(bytes, "abcdefgh");
}

TEST_F(CheckpointTest, a_file_cut_while_it_is_open_is_data_loss) {
    const auto checkpoint = Checkpoint::open(dir());
    ASSERT_TRUE(checkpoint) << checkpoint.status().to_string();
    std::filesystem::resize_file(file(kA), 8 + 65 + 10);
    std::string bytes(24, '\0');
    const Status status =
        checkpoint->read(*checkpoint->find("x"), 0, std::as_writable_bytes(std::span(bytes)));
    EXPECT_EQ(status.to_string(), "data_loss: tensor x: " + file(kA).string() +
                                      " ends at byte 83, it had 97 bytes when it was opened");
}

TEST_F(CheckpointTest, refuses_a_folder_without_index) {
    std::filesystem::remove(file("model.safetensors.index.json"));
    EXPECT_EQ(refusal(), "not_found: cannot read " + file("model.safetensors.index.json").string() +
                             ": No such file or directory");
}

TEST_F(CheckpointTest, refuses_a_missing_shard) {
    std::filesystem::remove(file(kB));
    EXPECT_EQ(refusal(),
              "not_found: cannot read " + file(kB).string() + ": No such file or directory");
}

TEST_F(CheckpointTest, refuses_a_pipe_or_folder_in_place_of_a_shard_without_waiting) {
    std::filesystem::remove(file(kA));
    ASSERT_EQ(mkfifo(file(kA).c_str(), 0600), 0);
    EXPECT_EQ(refusal(), "data_loss: " + file(kA).string() + " is a pipe, expected a regular file");
    std::filesystem::remove(file(kA));
    std::filesystem::create_directory(file(kA));
    EXPECT_EQ(refusal(),
              "data_loss: " + file(kA).string() + " is a folder, expected a regular file");
}

TEST_F(CheckpointTest, refuses_a_truncated_shard_with_declared_and_actual_size) {
    std::filesystem::resize_file(file(kA), 8 + 65 + 23);
    EXPECT_EQ(refusal(),
              "data_loss: " + file(kA).string() +
                  ": the header declares 97 bytes (up to tensor x), the file has 96: it is "
                  "truncated, copy it again");
    std::filesystem::resize_file(file(kA), 40);
    EXPECT_EQ(refusal(), "data_loss: " + file(kA).string() +
                             ": the header declares 65 bytes for itself, the file has 40: it is "
                             "truncated, copy it again");
    std::filesystem::resize_file(file(kA), 5);
    EXPECT_EQ(refusal(),
              "data_loss: " + file(kA).string() +
                  ": the file has 5 bytes, expected at least the 8 of a safetensors file's "
                  "length field: it is truncated, copy it again");
}

TEST_F(CheckpointTest, refuses_a_header_over_the_limit) {
    write_file(file(kA), std::string("\x01\xe1\xf5\x05\0\0\0\0", 8));
    EXPECT_EQ(refusal(),
              "data_loss: " + file(kA).string() +
                  ": the header declares 100000001 bytes for itself, the limit is 100000000: "
                  "this is not a safetensors file");
    write_file(file(kA), std::string(8, '\xff'));
    EXPECT_THAT(refusal(), HasSubstr("declares 18446744073709551615 bytes for itself"));
}

TEST_F(CheckpointTest, refuses_a_header_that_is_not_one_json_object) {
    EXPECT_THAT(refusal_of_a("", 0), HasSubstr("not the JSON of a safetensors file"));
    EXPECT_THAT(refusal_of_a("[]", 0), HasSubstr("not the JSON of a safetensors file"));
    EXPECT_THAT(refusal_of_a("{\"x\": ", 0), HasSubstr("not the JSON of a safetensors file"));
    EXPECT_THAT(refusal_of_a("{\"x\": \xff\xfe}", 0),
                HasSubstr("not the JSON of a safetensors file"));
    EXPECT_EQ(refusal_of_a("{} {}", 0), "the header has more than one JSON object");
}

TEST_F(CheckpointTest, refuses_tensors_whose_size_is_not_shape_times_dtype) {
    EXPECT_EQ(
        refusal_of_a(R"({"x": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 24]}})", 24),
        "tensor x: data_offsets [0, 24] hold 24 bytes, expected the bytes of F32 [2, 4]");
    EXPECT_EQ(
        refusal_of_a(R"({"x": {"dtype": "F32", "shape": [-2, -3], "data_offsets": [0, 24]}})", 24),
        "tensor x: data_offsets [0, 24] hold 24 bytes, expected the bytes of F32 [-2, -3]");
    EXPECT_EQ(refusal_of_a(R"({"x": {"dtype": "U8", "shape": [4294967296, 4294967296, 4],
                                     "data_offsets": [0, 0]}})",
                           0),
              "tensor x: data_offsets [0, 0] hold 0 bytes, expected the bytes of U8 [4294967296, "
              "4294967296, 4]");
}

TEST_F(CheckpointTest, refuses_wrong_offsets) {
    EXPECT_EQ(refusal_of_a(R"({"x": {"dtype": "U8", "shape": [8], "data_offsets": [8, 0]}})", 8),
              "tensor x: data_offsets [8, 0], expected [begin, end] with 0 <= begin <= end");
    EXPECT_EQ(refusal_of_a(R"({"x": {"dtype": "U8", "shape": [8], "data_offsets": [-8, 0]}})", 8),
              "tensor x: data_offsets [-8, 0], expected [begin, end] with 0 <= begin <= end");
    EXPECT_EQ(refusal_of_a(R"({"x": {"dtype": "U8", "shape": [8], "data_offsets": [8]}})", 8),
              "tensor x: data_offsets [8], expected [begin, end] with 0 <= begin <= end");
    EXPECT_EQ(
        refusal_of_a(R"({"x": {"dtype": "U8", "shape": [0],
                                     "data_offsets": [9223372036854775807, 9223372036854775807]}})",
                     8),
        "tensor x: data_offsets [9223372036854775807, 9223372036854775807], expected [begin, end] "
        "with 0 <= begin <= end");
}

TEST_F(CheckpointTest, refuses_overlapping_tensors) {
    EXPECT_EQ(refusal_of_a(R"({"x": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
                               "v": {"dtype": "U8", "shape": [8], "data_offsets": [7, 15]}})",
                           15),
              "tensors x and v overlap: the first ends at byte 168, the second begins at byte 167");
}

TEST_F(CheckpointTest, refuses_fields_that_are_unknown_missing_or_repeated) {
    EXPECT_EQ(refusal_of_a(R"({"x": {"dtype": "U8", "shape": [0], "offset": 4}})", 0),
              "tensor x: unknown field \"offset\", expected dtype, shape and data_offsets");
    EXPECT_EQ(refusal_of_a(R"({"x": {"dtype": "U8", "shape": [0]}})", 0),
              "tensor x: 2 of the fields dtype, shape and data_offsets found");
    EXPECT_EQ(refusal_of_a(R"({"x": {"dtype": "U8", "shape": [0], "shape": [0]}})", 0),
              "tensor x: field \"shape\" is there twice");
    EXPECT_EQ(refusal_of_a(R"({"x": {"dtype": "FP7", "shape": [0], "data_offsets": [0, 0]}})", 0),
              "tensor x: dtype \"FP7\" is not one of the safetensors format");
    EXPECT_THAT(refusal_of_a(R"({"x": 7})", 0), HasSubstr("tensor x: the header is not the JSON"));
    EXPECT_THAT(refusal_of_a(R"({"": {}})", 0), HasSubstr("name has 0 bytes"));
    EXPECT_THAT(refusal_of_a(R"({"a\nb": {}})", 0), HasSubstr("name has 3 bytes"));
}

TEST_F(CheckpointTest, refuses_a_tensor_that_is_there_twice) {
    EXPECT_EQ(refusal_of_a(R"({"x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                               "x": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
                           2),
              "tensor x is there twice");
    write_index(dir(), {{"x", kA}, {"y", kB}, {"x", kA}, {"z", kB}});
    EXPECT_EQ(refusal(), "data_loss: " + file("model.safetensors.index.json").string() +
                             ": tensor x is there twice");
}

TEST_F(CheckpointTest, refuses_an_index_that_disagrees_with_the_shards) {
    write_index(dir(), {{"x", kA}, {"y", kB}, {"z", kB}, {"w", kB}});
    EXPECT_EQ(refusal(), "data_loss: " + file(kB).string() +
                             ": tensor w is missing, the index says that it is in this file");
    write_index(dir(), {{"x", kA}, {"y", kB}});
    EXPECT_EQ(refusal(), "data_loss: " + file(kB).string() +
                             ": tensor z is in the file, but not in the index");
    write_index(dir(), {{"x", kA}, {"y", kB}, {"z", kA}});
    EXPECT_EQ(refusal(), "data_loss: " + file(kB).string() +
                             ": tensor z is in this file, the index says " + file(kA).string());
}

TEST_F(CheckpointTest, refuses_file_names_that_leave_the_folder) {
    for (const char* name :
         {"../a.safetensors", "/etc/passwd", "", ".", "..", "sub/a.safetensors"}) {
        write_index(dir(), {{"x", name}});
        EXPECT_THAT(refusal(), HasSubstr("expected the name of a file in the same folder")) << name;
    }
}

TEST_F(CheckpointTest, refuses_an_index_that_is_damaged) {
    const auto index = file("model.safetensors.index.json");
    write_file(index, "{\"weight_map\": {\"x\": \"a.saf");
    EXPECT_THAT(refusal(), AllOf(HasSubstr(index.string()), HasSubstr("not a safetensors index")));
    write_file(index, "{}");
    EXPECT_THAT(refusal(), HasSubstr("field weight_map is there 0 times, expected once"));
    write_file(index, "{\"weight_map\": {\"x\": 4}}");
    EXPECT_THAT(refusal(), HasSubstr("not a safetensors index"));
    write_file(index, "");
    EXPECT_THAT(refusal(), HasSubstr("not a safetensors index"));
}

TEST_F(CheckpointTest, accepts_bytes_that_belong_to_no_tensor) {
    EXPECT_EQ(
        refusal_of_a(R"({"x": {"dtype": "U8", "shape": [8], "data_offsets": [64, 72]}})", 100),
        "accepted");
}

TEST_F(CheckpointTest, offsets_beyond_four_gib_are_exact) {
    constexpr int64_t kFar = (int64_t{5} << 30) + 3;
    const std::string header =
        R"({"x": {"dtype": "U8", "shape": [5368709123], "data_offsets": [0, 5368709123]},
            "v": {"dtype": "U8", "shape": [4], "data_offsets": [5368709123, 5368709127]}})";
    write_shard(file(kA), header, kFar);
    std::FILE* out = std::fopen(file(kA).c_str(), "ab");
    ASSERT_NE(out, nullptr);
    ASSERT_EQ(std::fwrite("tail", 1, 4, out), 4u);
    ASSERT_EQ(std::fclose(out), 0);
    write_index(dir(), {{"x", kA}, {"v", kA}, {"y", kB}, {"z", kB}});

    const auto checkpoint = Checkpoint::open(dir());
    ASSERT_TRUE(checkpoint) << checkpoint.status().to_string();
    EXPECT_EQ(checkpoint->total_bytes(), kFar + 4 + 17);
    std::string bytes(4, '\0');
    EXPECT_TRUE(
        checkpoint->read(*checkpoint->find("v"), 0, std::as_writable_bytes(std::span(bytes))));
    EXPECT_EQ(bytes, "tail");
    std::string last(1, 'x');
    EXPECT_TRUE(checkpoint->read(*checkpoint->find("x"), kFar - 1,
                                 std::as_writable_bytes(std::span(last))));
    EXPECT_EQ(last, std::string(1, '\0'));
}

TEST(SafetensorsHeader, refuses_names_that_a_terminal_would_obey) {
    for (const std::string name : {"a\\u001b[2J", "\\u009b", "a\\u007f", "a\\n"}) {
        const std::string json =
            "{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
        const auto header =
            parse_safetensors_header(json, kSafetensorsLengthBytes + std::ssize(json) + 1);
        EXPECT_THAT(header.status().message(), HasSubstr("printable ones")) << name;
    }
}

}  // namespace
}  // namespace k3pod
