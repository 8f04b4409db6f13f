#include "status_error.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace k3pod {
namespace {

int http_status(Code code) {
    switch (code) {
        case Code::kOk:
            return 200;
        case Code::kInvalidArgument:
            return 400;
        case Code::kNotFound:
            return 404;
        case Code::kPermissionDenied:
            return 403;
        case Code::kResourceExhausted:
            return 429;
        case Code::kFailedPrecondition:
        case Code::kCancelled:
        case Code::kUnavailable:
            return 503;
        case Code::kDeadlineExceeded:
            return 504;
        case Code::kUnimplemented:
            return 501;
        case Code::kDataLoss:
        case Code::kInternal:
            return 500;
    }
    return 500;
}

std::string leading_field(std::string_view message) {
    const auto is_path = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '[' || c == ']';
    };
    const auto end = std::find_if_not(message.begin(), message.end(), is_path);
    if (end == message.begin() || end == message.end() || *end != ':') return {};
    return {message.begin(), end};
}

}  // namespace

ApiError to_api_error(const Status& status) {
    ApiError error{.status = http_status(status.code()), .message = status.message()};
    if (error.status == 400) error.param = leading_field(status.message());
    if (error.status != 400) error.code = code_name(status.code());
    return error;
}

}  // namespace k3pod
