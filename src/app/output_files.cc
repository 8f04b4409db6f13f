#include "output_files.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace k3pod {
namespace {

// Also of files that do not exist yet, and through links of either kind.
bool is_same_file(const std::string& a, const std::string& b) {
    std::error_code ignored;
    if (std::filesystem::equivalent(a, b, ignored)) return true;
    const std::filesystem::path real_a = std::filesystem::weakly_canonical(a, ignored);
    const std::filesystem::path real_b = std::filesystem::weakly_canonical(b, ignored);
    return !real_a.empty() && real_a == real_b;
}

Status check_pair(const NamedFile& output, const NamedFile& other) {
    if (output.path.empty() || other.path.empty()) return Status::ok();
    if (!is_same_file(output.path, other.path)) return Status::ok();
    return invalid_argument(
        fmt::format("{} {} is the file of {}, which it would replace; give it a name of its own",
                    output.option, output.path, other.option));
}

}  // namespace

Status check_outputs(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
        for (const NamedFile& input : inputs) K3POD_TRY(check_pair(outputs[i], input));
        for (size_t j = 0; j < i; ++j) K3POD_TRY(check_pair(outputs[i], outputs[j]));
    }
    return Status::ok();
}

Status write_output(const std::string& path, const std::string& text) {
    if (path.empty()) return Status::ok();
    errno = 0;
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (out) return Status::ok();
    return invalid_argument(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

}  // namespace k3pod
