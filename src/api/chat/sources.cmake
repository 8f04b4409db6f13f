# The chat format's part of room api; paths relative to src/api.
set(K3POD_CHAT_SOURCES
    chat/answer_builder.cc
    chat/argument_writer.cc
    chat/call_arguments.cc
    chat/canonical_json.cc
    chat/declared_tools.cc
    chat/json_text.cc
    chat/output_parser.cc
    chat/render.cc
    chat/segment_writer.cc
    chat/tag.cc
    chat/tool_results.cc
    chat/wording.cc)
