#include "door.h"

#include "commands.h"

namespace k3pod {

void Door::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
    if (answer_page(request, *reply)) return;
    OpenAiApi* api = nullptr;
    {
        const std::lock_guard lock(mutex_);
        api = api_;
    }
    if (api != nullptr) {
        api->handle(std::move(request), std::move(reply));
        return;
    }
    HttpResponse response;
    response.status = 503;
    response.headers = {{"Retry-After", "5"}};
    response.body =
        R"({"error":{"message":"the station is loading its weights; try again in a few seconds","type":"unavailable_error","param":null,"code":"loading"}})";
    reply->send(std::move(response));
}

void Door::open(OpenAiApi& api) {
    const std::lock_guard lock(mutex_);
    api_ = &api;
}

void Door::show_placement(const Placement& placement) {
    auto text = std::make_shared<const std::string>(to_json(placement));
    const std::lock_guard lock(mutex_);
    placement_ = std::move(text);
}

void Door::show_trace(std::function<PickTrace()> trace) {
    const std::lock_guard lock(mutex_);
    trace_ = std::move(trace);
}

bool Door::answer_page(const HttpRequest& request, HttpReply& reply) {
    if (request.method != "GET" && request.method != "HEAD") return false;
    if (request.path != kPlacementPath && request.path != kTracePath) return false;
    std::shared_ptr<const std::string> placement;
    std::function<PickTrace()> trace;
    {
        const std::lock_guard lock(mutex_);
        placement = placement_;
        trace = trace_;
    }
    if (request.path == kPlacementPath) {
        if (placement == nullptr) return false;
        reply.send({.body = *placement});
    } else {
        if (trace == nullptr) return false;
        reply.send({.body = to_json(trace())});
    }
    return true;
}

}  // namespace k3pod
