#include "transport/message.h"

#include <fmt/format.h>

#include "k3pod/wire/frame.h"

namespace k3pod::transport {

Status check_message(std::span<const std::byte> header, std::span<const std::byte> payload,
                     const std::string& peer_name) {
    if (header.size() != wire::kHeaderBytes) {
        return invalid_argument(fmt::format("message to {}: header is {} bytes, expected {}",
                                            peer_name, header.size(), wire::kHeaderBytes));
    }
    if (static_cast<int64_t>(payload.size()) > kMaxMessageBytes) {
        return invalid_argument(
            fmt::format("message to {}: payload is {} bytes, the limit is {}; send fewer rows",
                        peer_name, payload.size(), kMaxMessageBytes));
    }
    return Status::ok();
}

}  // namespace k3pod::transport
