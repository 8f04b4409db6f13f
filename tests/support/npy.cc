#include "tests/support/npy.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace k3pod::testing {
namespace {

constexpr size_t kPreambleBytes = 10;  // magic, version, header length

// The numbers of "'shape': (77, 2304)"; empty when there is none.
std::vector<int64_t> parse_shape(std::string_view header) {
    std::vector<int64_t> shape;
    const size_t open = header.find("'shape': (");
    if (open == std::string_view::npos) return shape;
    const std::string list(header.substr(open + 10, header.find(')', open) - open - 10));
    for (size_t at = 0; at < list.size();) {
        size_t used = 0;
        shape.push_back(std::stoll(list.substr(at), &used));
        at = list.find_first_of("0123456789", at + used);
    }
    return shape;
}

}  // namespace

Result<NpyArray> read_npy(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    if (!in || bytes.size() < kPreambleBytes || !bytes.starts_with("\x93NUMPY\x01")) {
        return invalid_argument(file.string() + ": not a .npy file of format 1.0");
    }
    const size_t header_bytes =
        static_cast<uint8_t>(bytes[8]) + 256u * static_cast<uint8_t>(bytes[9]);
    const std::string_view header = std::string_view(bytes).substr(kPreambleBytes, header_bytes);
    if (header.find("'descr': '<f4'") == std::string_view::npos ||
        header.find("'fortran_order': False") == std::string_view::npos) {
        return invalid_argument(file.string() + ": expected '<f4' in C order, found " +
                                std::string(header));
    }

    NpyArray array{.shape = parse_shape(header), .values = {}};
    size_t elements = 1;
    for (const int64_t n : array.shape) elements *= static_cast<size_t>(n);
    if (kPreambleBytes + header_bytes + elements * sizeof(float) != bytes.size()) {
        return invalid_argument(file.string() + ": size does not fit its shape");
    }
    array.values.resize(elements);
    std::memcpy(array.values.data(), bytes.data() + kPreambleBytes + header_bytes,
                elements * sizeof(float));
    return array;
}

}  // namespace k3pod::testing
