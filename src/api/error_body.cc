#include "error_body.h"

#include <nlohmann/json.hpp>

namespace k3pod {
namespace {

using OrderedJson = nlohmann::ordered_json;

const char* type_of(int status) {
    switch (status) {
        case 401:
            return "authentication_error";
        case 404:
            return "not_found_error";
        case 429:
            return "rate_limit_error";
        case 501:
        case 505:
            return "invalid_request_error";  // Not a fault of ours: what is asked is not HTTP/1.1.
        case 503:
            return "unavailable_error";
        case 504:
            return "timeout_error";
        default:
            return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

// Whatever a message quotes, an error stays small.
std::string shortened(std::string_view text, size_t max_bytes) {
    if (text.size() <= max_bytes) return std::string(text);
    size_t end = max_bytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    return std::string(text.substr(0, end)) + "...";
}

OrderedJson text_or_null(const std::string& text) {
    return text.empty() ? OrderedJson(nullptr) : OrderedJson(shortened(text, 256));
}

}  // namespace

std::string error_json(const ApiError& error) {
    const OrderedJson body{{"error",
                            {{"message", shortened(error.message, 2048)},
                             {"type", error.type.empty() ? type_of(error.status) : error.type},
                             {"param", text_or_null(error.param)},
                             {"code", text_or_null(error.code)}}}};
    // Messages may quote what a client sent, so bad UTF-8 is replaced and never throws.
    return body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

HttpResponse error_response(const ApiError& error) {
    HttpResponse response;
    response.status = error.status;
    response.body = error_json(error);
    if (error.status == 429 || error.status == 503)
        response.headers.push_back({"Retry-After", "1"});
    return response;
}

std::string excerpt(std::string_view text) {
    return "'" + shortened(text, 64) + "'";
}

}  // namespace k3pod
