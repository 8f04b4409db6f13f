#include "k3pod/weights/checkpoint.h"

#include <fmt/format.h>

#include <cstring>

#include "checkpoint_index.h"
#include "k3pod/base/check.h"
#include "k3pod/base/file.h"
#include "k3pod/base/log.h"
#include "name_table.h"

namespace k3pod {
namespace {

constexpr int64_t kNotPlaced = -1;  // Offset of a tensor that no header has named so far.

std::span<const int64_t> copy_shape(std::span<const int64_t> shape,
                                    std::pmr::memory_resource& memory) {
    if (shape.empty()) return {};
    void* copy = memory.allocate(shape.size_bytes(), alignof(int64_t));
    std::memcpy(copy, shape.data(), shape.size_bytes());
    return {static_cast<const int64_t*>(copy), shape.size()};
}

Result<SafetensorsHeader> read_header(const FileReader& file) {
    const int64_t size = file.size_bytes();
    if (size < kSafetensorsLengthBytes) {
        return data_loss(
            fmt::format("the file has {} bytes, expected at least the {} of a safetensors "
                        "file's length field: it is truncated, copy it again",
                        size, kSafetensorsLengthBytes));
    }
    uint8_t raw[kSafetensorsLengthBytes];
    K3POD_TRY(file.read(0, std::as_writable_bytes(std::span(raw))));
    uint64_t length = 0;
    for (int i = kSafetensorsLengthBytes - 1; i >= 0; --i) length = length << 8 | raw[i];
    if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
        return data_loss(
            fmt::format("the header declares {} bytes for itself, the limit is {}: this is "
                        "not a safetensors file",
                        length, kMaxSafetensorsHeaderBytes));
    }
    if (static_cast<int64_t>(length) > size - kSafetensorsLengthBytes) {
        return data_loss(
            fmt::format("the header declares {} bytes for itself, the file has {}: it is "
                        "truncated, copy it again",
                        length, size));
    }
    std::string json(static_cast<size_t>(length), '\0');
    K3POD_TRY(file.read(kSafetensorsLengthBytes, std::as_writable_bytes(std::span(json))));
    return parse_safetensors_header(json, size);
}

}  // namespace

struct Checkpoint::Impl {
    std::filesystem::path dir;
    std::pmr::monotonic_buffer_resource memory;  // Names and shapes.
    std::vector<FileReader> files;
    std::vector<TensorInfo> tensors;
    NameTable table{0};
    int64_t total_bytes = 0;

    auto name_at() const {
        return [this](int32_t i) { return tensors[static_cast<size_t>(i)].name; };
    }
    TensorInfo* find(std::string_view name) {
        const int32_t at = table.find(name, name_at());
        return at < 0 ? nullptr : &tensors[static_cast<size_t>(at)];
    }

    Status load_index();
    Status load_file(int32_t file_idx);
    Status place(const TensorInfo& found, int32_t file_idx);
    Status check_all_placed() const;

  private:
    std::string path_of(int32_t file_idx) const {
        return files[static_cast<size_t>(file_idx)].path().string();
    }
};

// Opens the files and fills `tensors` with what the index knows: name and file.
Status Checkpoint::Impl::load_index() {
    const std::filesystem::path path = dir / "model.safetensors.index.json";
    K3POD_ASSIGN(const CheckpointIndex index, read_checkpoint_index(path, memory));
    for (const std::string& name : index.files) {
        K3POD_ASSIGN(FileReader file, FileReader::open(dir / name));
        files.push_back(std::move(file));
    }
    tensors.reserve(index.entries.size());
    table = NameTable(index.entries.size());
    for (const auto& [name, file] : index.entries) {
        const auto position = static_cast<int32_t>(tensors.size());
        tensors.push_back({.name = name, .shape = {}, .file = file, .offset_bytes = kNotPlaced});
        if (table.insert(name, position, name_at()) != position) {
            return data_loss(fmt::format("{}: tensor {} is there twice", path.string(), name));
        }
    }
    return Status::ok();
}

Status Checkpoint::Impl::load_file(int32_t file_idx) {
    const FileReader& file = files[static_cast<size_t>(file_idx)];
    const Result<SafetensorsHeader> header = read_header(file);
    if (!header) return header.status().with_context(path_of(file_idx));
    for (const TensorInfo& found : header->tensors) {
        const Status status = place(found, file_idx);
        if (!status) return status.with_context(path_of(file_idx));
    }
    if (header->unnamed_bytes > 0) {
        log::warning(fmt::format("{}: {} bytes belong to no tensor and are ignored",
                                 path_of(file_idx), header->unnamed_bytes));
    }
    return Status::ok();
}

// Takes over what a file's header says of a tensor that the index knows.
Status Checkpoint::Impl::place(const TensorInfo& found, int32_t file_idx) {
    TensorInfo* tensor = find(found.name);
    if (tensor == nullptr) {
        return data_loss(fmt::format("tensor {} is in the file, but not in the index", found.name));
    }
    if (tensor->file != file_idx) {
        return data_loss(fmt::format("tensor {} is in this file, the index says {}", found.name,
                                     path_of(tensor->file)));
    }
    if (tensor->offset_bytes != kNotPlaced) {
        return data_loss(fmt::format("tensor {} is there twice", found.name));
    }
    tensor->dtype = found.dtype;
    tensor->shape = copy_shape(found.shape, memory);
    tensor->offset_bytes = found.offset_bytes;
    tensor->size_bytes = found.size_bytes;
    total_bytes += found.size_bytes;
    return Status::ok();
}

Status Checkpoint::Impl::check_all_placed() const {
    for (const TensorInfo& tensor : tensors) {
        if (tensor.offset_bytes != kNotPlaced) continue;
        return data_loss(
            fmt::format("{}: tensor {} is missing, the index says that it is in this file",
                        path_of(tensor.file), tensor.name));
    }
    return Status::ok();
}

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& dir) {
    auto impl = std::make_unique<Impl>();
    impl->dir = dir;
    K3POD_TRY(impl->load_index());
    for (size_t i = 0; i < impl->files.size(); ++i) {
        K3POD_TRY(impl->load_file(static_cast<int32_t>(i)));
    }
    K3POD_TRY(impl->check_all_placed());
    return Checkpoint(std::move(impl));
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

const std::filesystem::path& Checkpoint::dir() const {
    return impl_->dir;
}
int64_t Checkpoint::num_tensors() const {
    return static_cast<int64_t>(impl_->tensors.size());
}
int64_t Checkpoint::total_bytes() const {
    return impl_->total_bytes;
}
const TensorInfo* Checkpoint::find(std::string_view name) const {
    return impl_->find(name);
}
const std::vector<TensorInfo>& Checkpoint::tensors() const {
    return impl_->tensors;
}

const std::filesystem::path& Checkpoint::file_path(int32_t file) const {
    return impl_->files[static_cast<size_t>(file)].path();
}

Status Checkpoint::read(const TensorInfo& tensor, int64_t begin, std::span<std::byte> out) const {
    const auto bytes = static_cast<int64_t>(out.size());
    K3POD_CHECK(begin >= 0 && bytes <= tensor.size_bytes && begin <= tensor.size_bytes - bytes,
                "a read stays inside its tensor");
    const Status status =
        impl_->files[static_cast<size_t>(tensor.file)].read_once(tensor.offset_bytes + begin, out);
    return status ? status : status.with_context(fmt::format("tensor {}", tensor.name));
}

void Checkpoint::drop_cached(int32_t file) const {
    impl_->files[static_cast<size_t>(file)].drop_cached();
}

}  // namespace k3pod
