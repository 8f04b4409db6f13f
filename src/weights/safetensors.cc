#include "k3pod/weights/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "k3pod/base/text.h"

namespace k3pod {
namespace {

namespace ondemand = simdjson::ondemand;

struct DTypeRow {
    std::string_view name;
    DType dtype;
    int64_t bits;
};

// In the order of the enumerators.
constexpr DTypeRow kDTypes[] = {
    {"F32", DType::kF32, 32},       {"BF16", DType::kBf16, 16},     {"F16", DType::kF16, 16},
    {"F8_E4M3", DType::kF8E4M3, 8}, {"U8", DType::kU8, 8},          {"BOOL", DType::kBool, 8},
    {"I8", DType::kI8, 8},          {"I16", DType::kI16, 16},       {"U16", DType::kU16, 16},
    {"I32", DType::kI32, 32},       {"U32", DType::kU32, 32},       {"I64", DType::kI64, 64},
    {"U64", DType::kU64, 64},       {"F8_E5M2", DType::kF8E5M2, 8}, {"F8_E8M0", DType::kF8E8M0, 8},
    {"F64", DType::kF64, 64},       {"C64", DType::kC64, 64},       {"F4", DType::kF4, 4},
    {"F6_E2M3", DType::kF6E2M3, 6}, {"F6_E3M2", DType::kF6E3M2, 6},
};
constexpr bool is_in_order() {
    size_t position = 0;
    for (const DTypeRow& row : kDTypes) {
        if (static_cast<size_t>(row.dtype) != position++) return false;
    }
    return position == static_cast<size_t>(DType::kF6E3M2) + 1;
}
static_assert(is_in_order());

constexpr size_t kMaxNameBytes = 512;
constexpr size_t kMaxRank = 16;

const DTypeRow* find_dtype(std::string_view name) {
    const auto at = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                 [&](const DTypeRow& row) { return row.name == name; });
    return at == std::end(kDTypes) ? nullptr : at;
}

Status json_error(simdjson::error_code error) {
    return data_loss(fmt::format("the header is not the JSON of a safetensors file: {}",
                                 simdjson::error_message(error)));
}

// One tensor as its JSON object states it.
struct Entry {
    std::string_view dtype;
    std::vector<int64_t> shape;
    std::vector<int64_t> data_offsets;
    int fields = 0;
};

Status read_integers(ondemand::value value, std::vector<int64_t>& out) {
    ondemand::array list;
    if (const auto error = value.get_array().get(list)) return json_error(error);
    for (auto item : list) {
        int64_t number = 0;
        if (const auto error = item.get_int64().get(number)) return json_error(error);
        if (out.size() == kMaxRank) {
            return data_loss(fmt::format("a list has more than {} numbers", kMaxRank));
        }
        out.push_back(number);
    }
    return Status::ok();
}

Status read_field(std::string_view key, ondemand::value value, Entry& entry) {
    if (key == "dtype") {
        const auto error = value.get_string().get(entry.dtype);
        return error ? json_error(error) : Status::ok();
    }
    if (key == "shape") return read_integers(value, entry.shape);
    if (key == "data_offsets") return read_integers(value, entry.data_offsets);
    return data_loss(fmt::format("unknown field \"{}\", expected dtype, shape and data_offsets",
                                 key.substr(0, kMaxNameBytes)));
}

Status read_entry(ondemand::value value, Entry& entry) {
    ondemand::object object;
    if (const auto error = value.get_object().get(object)) return json_error(error);
    std::string_view seen[3];
    for (auto result : object) {
        ondemand::field field;
        std::string_view key;
        if (const auto error = std::move(result).get(field)) return json_error(error);
        if (const auto error = field.unescaped_key().get(key)) return json_error(error);
        if (std::find(seen, seen + entry.fields, key) != seen + entry.fields) {
            return data_loss(fmt::format("field \"{}\" is there twice", key));
        }
        K3POD_TRY(read_field(key, field.value(), entry));
        seen[entry.fields++] = key;
    }
    if (entry.fields != 3) {
        return data_loss(
            fmt::format("{} of the fields dtype, shape and data_offsets found", entry.fields));
    }
    return Status::ok();
}

// Bytes of a tensor, or -1 when a dimension is negative, the product leaves 64 bits or is not
// whole.
int64_t bytes_of(const std::vector<int64_t>& shape, int64_t bits) {
    int64_t total = bits;
    for (const int64_t extent : shape) {
        if (extent < 0 || __builtin_mul_overflow(total, extent, &total)) return -1;
    }
    return total % 8 == 0 ? total / 8 : -1;
}

class HeaderReader {
  public:
    HeaderReader(int64_t payload_begin, int64_t file_bytes)
        : payload_begin_(payload_begin), file_bytes_(file_bytes) {
        header_.memory = std::make_unique<std::pmr::monotonic_buffer_resource>();
    }

    Status read(ondemand::object object) {
        for (auto result : object) {
            ondemand::field field;
            std::string_view name;
            if (const auto error = std::move(result).get(field)) return json_error(error);
            if (const auto error = field.unescaped_key().get(name)) return json_error(error);
            if (name == "__metadata__") continue;
            if (name.empty() || name.size() > kMaxNameBytes || has_controls(name)) {
                return data_loss(
                    fmt::format("a tensor's name has {} bytes, expected 1 to {} printable ones",
                                name.size(), kMaxNameBytes));
            }
            Entry entry;
            Status status = read_entry(field.value(), entry);
            if (status) status = add(name, entry);
            if (!status) return status.with_context(fmt::format("tensor {}", name));
        }
        return check_order();
    }

    SafetensorsHeader take() { return std::move(header_); }

  private:
    Status add(std::string_view name, const Entry& entry) {
        const DTypeRow* dtype = find_dtype(entry.dtype);
        if (dtype == nullptr) {
            return data_loss(fmt::format("dtype \"{}\" is not one of the safetensors format",
                                         entry.dtype.substr(0, kMaxNameBytes)));
        }
        const auto& offsets = entry.data_offsets;
        if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0] ||
            offsets[1] > INT64_MAX - payload_begin_) {
            return data_loss(
                fmt::format("data_offsets [{}], expected [begin, end] with 0 <= begin <= end",
                            fmt::join(offsets, ", ")));
        }
        const int64_t bytes = offsets[1] - offsets[0];
        if (bytes_of(entry.shape, dtype->bits) != bytes) {
            return data_loss(fmt::format(
                "data_offsets [{}] hold {} bytes, expected the bytes of {} [{}]",
                fmt::join(offsets, ", "), bytes, dtype->name, fmt::join(entry.shape, ", ")));
        }
        header_.tensors.push_back({.name = keep(name),
                                   .dtype = dtype->dtype,
                                   .shape = keep(entry.shape),
                                   .file = 0,
                                   .offset_bytes = payload_begin_ + offsets[0],
                                   .size_bytes = bytes});
        return Status::ok();
    }

    Status check_order() {
        auto& tensors = header_.tensors;
        std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
            return std::pair(a.offset_bytes, a.size_bytes) <
                   std::pair(b.offset_bytes, b.size_bytes);
        });
        int64_t end = payload_begin_;
        header_.unnamed_bytes = file_bytes_ - payload_begin_;
        const TensorInfo* last = nullptr;
        for (const TensorInfo& tensor : tensors) {
            if (tensor.offset_bytes < end) {
                return data_loss(
                    fmt::format("tensors {} and {} overlap: the first ends at byte {}, the second "
                                "begins at byte {}",
                                last->name, tensor.name, end, tensor.offset_bytes));
            }
            end = tensor.offset_bytes + tensor.size_bytes;
            header_.unnamed_bytes -= tensor.size_bytes;
            last = &tensor;
        }
        if (end > file_bytes_) {
            return data_loss(
                fmt::format("the header declares {} bytes (up to tensor {}), the file has {}: it "
                            "is truncated, copy it again",
                            end, last->name, file_bytes_));
        }
        return Status::ok();
    }

    std::string_view keep(std::string_view name) {
        char* copy = static_cast<char*>(header_.memory->allocate(name.size(), 1));
        std::memcpy(copy, name.data(), name.size());
        return {copy, name.size()};
    }

    std::span<const int64_t> keep(const std::vector<int64_t>& shape) {
        if (shape.empty()) return {};
        const size_t bytes = shape.size() * sizeof(int64_t);
        void* copy = header_.memory->allocate(bytes, alignof(int64_t));
        std::memcpy(copy, shape.data(), bytes);
        return {static_cast<const int64_t*>(copy), shape.size()};
    }

    int64_t payload_begin_;
    int64_t file_bytes_;
    SafetensorsHeader header_;
};

}  // namespace

const char* dtype_name(DType dtype) {
    return kDTypes[static_cast<size_t>(dtype)].name.data();
}

int64_t dtype_bits(DType dtype) {
    return kDTypes[static_cast<size_t>(dtype)].bits;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, int64_t file_bytes) {
    const simdjson::padded_string padded(json);
    ondemand::parser parser;
    ondemand::document document;
    ondemand::object object;
    if (const auto error = parser.iterate(padded).get(document)) return json_error(error);
    if (const auto error = document.get_object().get(object)) return json_error(error);
    HeaderReader reader(kSafetensorsLengthBytes + static_cast<int64_t>(json.size()), file_bytes);
    K3POD_TRY(reader.read(object));
    const char* rest = nullptr;
    if (document.current_location().get(rest) == simdjson::SUCCESS) {
        return data_loss("the header has more than one JSON object");
    }
    return reader.take();
}

}  // namespace k3pod
