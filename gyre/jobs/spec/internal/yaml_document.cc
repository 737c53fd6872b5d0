// YAML through yaml-cpp's event parser: aliases are counted as they are met, before they can grow.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <sstream>
#include <string>

#include "gyre/jobs/spec/internal/document_builder.h"

namespace gyre::jobs::spec {

namespace {

constexpr std::string_view kTagPrefix = "tag:yaml.org,2002:";

int line_of(const YAML::Mark& mark) { return mark.line + 1; }

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool looks_like_number(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  const bool begins_as_one = !text.empty() && (text.front() == '.' || (text.front() >= '0' && text.front() <= '9'));
  double value = 0;
  return begins_as_one &&
         std::from_chars(text.data(), text.data() + text.size(), value).ptr == text.data() + text.size();
}

/// What a scalar without quotes is, by YAML's core schema.
Value::Kind kind_of_plain(const std::string& text) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return Value::Kind::kNull;
  if (is_one_of(text, {"true", "True", "TRUE", "false", "False", "FALSE"})) return Value::Kind::kBoolean;
  return looks_like_number(text) ? Value::Kind::kNumber : Value::Kind::kText;
}

class YamlEvents : public YAML::EventHandler {
 public:
  explicit YamlEvents(DocumentBuilder& builder) : builder_(builder) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (builder_.expects_key()) return builder_.key("", line_of(mark));
    builder_.anchor_next(anchor);
    builder_.scalar(Value::Kind::kNull, "", true, line_of(mark));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override { builder_.repeat(anchor, line_of(mark)); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    const bool is_text = tag == "!" || tag == std::string(kTagPrefix) + "str";
    if (!is_text) check_tag(mark, tag, {"null", "bool", "int", "float"});
    // An escape can name what the file itself must not hold.
    if (text.find('\0') != std::string::npos) builder_.fail(line_of(mark), "a text has a NUL character");
    if (builder_.expects_key()) return add_key(mark, is_text, text);
    builder_.anchor_next(anchor);
    builder_.scalar(is_text ? Value::Kind::kText : kind_of_plain(text), text, !is_text, line_of(mark));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag, {"seq"});
    builder_.anchor_next(anchor);
    builder_.start(Value::Kind::kList, line_of(mark));
  }
  void OnSequenceEnd() override { builder_.end(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag, {"map"});
    builder_.anchor_next(anchor);
    builder_.start(Value::Kind::kObject, line_of(mark));
  }
  void OnMapEnd() override { builder_.end(); }

 private:
  void add_key(const YAML::Mark& mark, bool is_text, const std::string& name) {
    if (name == "<<" && !is_text)
      builder_.fail(line_of(mark), "merge keys (<<) are not supported: repeat the properties");
    builder_.key(name, line_of(mark));
  }

  /// yaml-cpp says "?" where a plain scalar, and "" or "!" where a list or a map has no tag.
  void check_tag(const YAML::Mark& mark, const std::string& tag, std::initializer_list<std::string_view> known) {
    if (is_one_of(tag, {"", "?", "!"})) return;
    const std::string_view name = tag;
    if (name.starts_with(kTagPrefix) && is_one_of(name.substr(kTagPrefix.size()), known)) return;
    builder_.fail(line_of(mark), "tags of YAML are not supported here");
  }

  DocumentBuilder& builder_;
};

}  // namespace

void read_yaml(std::string_view text, DocumentBuilder& builder) {
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    YamlEvents events(builder);
    if (!parser.HandleNextDocument(events)) builder.fail(0, "the file is empty");
    std::vector<Problem> ignored;
    DocumentBuilder second(ignored);
    YamlEvents second_events(second);
    if (parser.HandleNextDocument(second_events)) builder.fail(0, "the file has more than one document of YAML");
  } catch (const YAML::Exception& error) {
    // Its message may name an anchor, never a value.
    const int line = error.mark.is_null() ? 0 : line_of(error.mark);
    builder.fail(line, fmt::format("the file is not valid YAML: {}", error.msg));
  }
}

}  // namespace gyre::jobs::spec
