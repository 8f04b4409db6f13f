// Arbitrary bytes as a message of the data plane: 64 bytes of header, the rest payload. Random
// bytes never carry the right checksum, so each input is also tried with a sealed header: that one
// reaches the shape checks.

#include <cstdint>
#include <cstring>
#include <span>

#include "k3pod/wire/codec.h"
#include "k3pod/wire/stage.h"

namespace {

using namespace k3pod::wire;

constexpr FrameLimits kLimits{
    .latent = 8, .num_layers = 4, .num_experts = 16, .top_k = 4, .max_rows = 32};

void try_message(std::span<const std::byte> header_bytes, std::span<const std::byte> payload) {
    const auto header = decode_header(header_bytes);
    if (!header) return;
    (void)check_request(*header, payload, kLimits).is_ok();
    (void)check_reply(*header, payload, kLimits).is_ok();
    (void)status_name(header->status);
}

// The same as a message of staging.
void try_stage_message(std::span<const std::byte> header_bytes,
                       std::span<const std::byte> payload) {
    (void)decode_stage_header(header_bytes, payload).is_ok();
    StageHeader sealed;
    std::memcpy(&sealed, header_bytes.data(), kHeaderBytes);
    seal_header(sealed);
    (void)decode_stage_header(std::as_bytes(std::span(&sealed, 1)), payload).is_ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    if (size < kHeaderBytes) {
        try_message(bytes, {});
        return 0;
    }
    const auto payload = bytes.subspan(kHeaderBytes);
    try_message(bytes.first(kHeaderBytes), payload);
    try_stage_message(bytes.first(kHeaderBytes), payload);

    FrameHeader sealed;
    std::memcpy(&sealed, data, kHeaderBytes);
    seal_header(sealed);
    try_message(std::as_bytes(std::span(&sealed, 1)), payload);
    // Once more with the counts made to fit the size, which leaves the entries to be judged.
    sealed.kind = FrameKind::kRequest;
    sealed.rows = static_cast<uint16_t>(1 + sealed.rows % 4);
    const auto row_bytes =
        static_cast<size_t>(request_payload_bytes(kLimits.latent, sealed.rows, 0));
    if (payload.size() < row_bytes) return 0;
    sealed.entries = static_cast<uint32_t>((payload.size() - row_bytes) / sizeof(WireEntry));
    const auto whole = payload.first(row_bytes + sealed.entries * sizeof(WireEntry));
    sealed.payload_bytes = static_cast<uint32_t>(whole.size());
    sealed.payload_check = payload_checksum(whole);
    seal_header(sealed);
    try_message(std::as_bytes(std::span(&sealed, 1)), whole);
    return 0;
}
