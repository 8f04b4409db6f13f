// Writes a changed copy of a small model for end-to-end tests: make_checkpoint KIND SRC DST [ARGS].

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/checkpoint_fixture.h"

namespace k3pod::testing {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;

void copy(EditableCheckpoint&, const Args&) {}

void mxfp4(EditableCheckpoint& checkpoint, const Args&) {
    convert_to_mxfp4(checkpoint);
}

void drop_tensor(EditableCheckpoint& checkpoint, const Args& args) {
    checkpoint.drop(args[0]);
}

void nan_scale(EditableCheckpoint& checkpoint, const Args& args) {
    set_nan(checkpoint.tensor(args[0]), std::stoll(args[1]));
}

void set_byte(EditableCheckpoint& checkpoint, const Args& args) {
    checkpoint.tensor(args[0]).bytes.at(std::stoull(args[1])) =
        static_cast<char>(std::stoi(args[2], nullptr, 0));
}

void retype(EditableCheckpoint& checkpoint, const Args& args) {
    checkpoint.tensor(args[0]).dtype = args[1];
}

void reshape(EditableCheckpoint& checkpoint, const Args& args) {
    nlohmann::json::parse(args[1]).get_to(checkpoint.tensor(args[0]).shape);
}

void bf16(EditableCheckpoint& checkpoint, const Args& args) {
    store_as_bf16(checkpoint, args[0]);
}

void set_config(EditableCheckpoint& checkpoint, const Args& args) {
    checkpoint.config[nlohmann::json::json_pointer(args[0])] = nlohmann::json::parse(args[1]);
}

void truncate(const fs::path& dir, const Args& args) {
    const fs::path file = dir / args[0];
    fs::resize_file(file, fs::file_size(file) - std::stoull(args[1]));
}

void overlap(const fs::path& dir, const Args& args) {
    edit_header(dir / args[0], [&](nlohmann::ordered_json& header) {
        auto& offsets = header.at(args[1])["data_offsets"];
        for (auto& offset : offsets) offset = offset.get<int64_t>() - std::stoll(args[2]);
    });
}

void oversize_header(const fs::path& dir, const Args& args) {
    std::string bytes = read_file(dir / args[0]);
    bytes.replace(0, 8, std::string("\xff\xff\xff\xff\0\0\0\0", 8));
    write_file(dir / args[0], bytes);
}

// A kind edits the tensors before they are saved, or the files afterwards.
struct Kind {
    const char* name;
    size_t num_args;
    const char* usage;
    void (*edit)(EditableCheckpoint&, const Args&);
    void (*damage)(const fs::path& dir, const Args&);
};

constexpr Kind kKinds[] = {
    {"copy", 0, "", copy, nullptr},
    {"mxfp4", 0, "                        the layout of the MXFP4 release", mxfp4, nullptr},
    {"bf16", 1, "MODULE                   one FP8 module as BF16, config unchanged", bf16, nullptr},
    {"config", 2, "POINTER JSON           one value of config.json", set_config, nullptr},
    {"drop-tensor", 1, "TENSOR            gone from shard and index", drop_tensor, nullptr},
    {"nan-scale", 2, "TENSOR INDEX        one value becomes NaN", nan_scale, nullptr},
    {"set-byte", 3, "TENSOR INDEX BYTE    one byte of its data", set_byte, nullptr},
    {"retype", 2, "TENSOR DTYPE           another dtype in the header", retype, nullptr},
    {"reshape", 2, "TENSOR [DIMS]         another shape in the header", reshape, nullptr},
    {"truncate", 2, "FILE BYTES           the last bytes cut off", nullptr, truncate},
    {"overlap", 3, "FILE TENSOR BYTES     moved onto its neighbour", nullptr, overlap},
    {"oversize-header", 1, "FILE          a length of 4 GiB", nullptr, oversize_header},
};

int usage() {
    std::fputs("usage: make_checkpoint KIND SRC DST [ARGS]\n", stderr);
    for (const Kind& kind : kKinds) std::fprintf(stderr, "  %s %s\n", kind.name, kind.usage);
    return 2;
}

int run(const Args& args) {
    if (args.size() < 3) return usage();
    const Args rest(args.begin() + 3, args.end());
    for (const Kind& kind : kKinds) {
        if (args[0] != kind.name || rest.size() != kind.num_args) continue;
        EditableCheckpoint checkpoint(args[1]);
        if (kind.edit != nullptr) kind.edit(checkpoint, rest);
        checkpoint.save(args[2]);
        if (kind.damage != nullptr) kind.damage(args[2], rest);
        return 0;
    }
    return usage();
}

}  // namespace
}  // namespace k3pod::testing

int main(int argc, char** argv) {
    try {
        return k3pod::testing::run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "make_checkpoint: %s\n", error.what());
        return 1;
    }
}
