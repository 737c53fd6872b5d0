#include "gyre/jobs/spec/internal/document_builder.h"

#include <fmt/format.h>

#include <utility>

namespace gyre::jobs::spec {

namespace {

/// Aliases of YAML may repeat text; together not more than this.
constexpr std::size_t kMostTextBytes = 2 * kMostFileBytes;

}  // namespace

void DocumentBuilder::scalar(Value::Kind kind, std::string text, bool plain, int line) {
  count_one(text.size(), line);
  Value value;
  value.kind = kind;
  value.text = std::move(text);
  value.plain = plain;
  value.line = line;
  add(std::move(value), std::exchange(next_anchor_, 0));
}

void DocumentBuilder::start(Value::Kind kind, int line) {
  count_one(0, line);
  if (expects_key()) fail(line, "a list or an object cannot be a property's name");
  if (open_.size() >= static_cast<std::size_t>(kMostNesting))
    fail(line, fmt::format("the file is nested more than {} levels deep", kMostNesting));
  Open& opened = open_.emplace_back();
  opened.value.kind = kind;
  opened.value.line = line;
  opened.anchor = std::exchange(next_anchor_, 0);
}

void DocumentBuilder::key(std::string name, int line) {
  count_one(name.size(), line);
  Open& object = open_.back();
  if (!object.names.insert(name).second && problems_.size() < kMostProblems) {
    problems_.push_back({Severity::kError, pointer() + "/" + pointer_step(name), line, "is given twice"});
  }
  object.value.members.push_back({std::move(name), line, Value{}});
  object.has_key = true;
}

void DocumentBuilder::end() {
  Open complete = std::move(open_.back());
  open_.pop_back();
  add(std::move(complete.value), complete.anchor);
}

bool DocumentBuilder::expects_key() const {
  return !open_.empty() && open_.back().value.kind == Value::Kind::kObject && !open_.back().has_key;
}

void DocumentBuilder::repeat(std::size_t anchor, int line) {
  const auto found = anchored_.find(anchor);
  if (found == anchored_.end()) fail(line, "an alias refers to something that contains it");
  if (expects_key()) {
    if (found->second.kind == Value::Kind::kList || found->second.kind == Value::Kind::kObject)
      fail(line, "a list or an object cannot be a property's name");
    return key(found->second.text, line);
  }
  count(found->second);
  add(found->second, 0);
}

void DocumentBuilder::fail(int line, std::string message) const { throw DocumentError{line, std::move(message)}; }

void DocumentBuilder::add(Value value, std::size_t anchor) {
  if (anchor != 0) {
    count(value);  // The copy takes memory too.
    anchored_[anchor] = value;
  }
  if (open_.empty()) {
    root_ = std::move(value);
    return;
  }
  Open& parent = open_.back();
  if (parent.value.kind == Value::Kind::kList) {
    parent.value.items.push_back(std::move(value));
    return;
  }
  parent.value.members.back().value = std::move(value);
  parent.has_key = false;
}

void DocumentBuilder::count(const Value& value) {
  count_one(value.text.size(), value.line);
  for (const Value& item : value.items) count(item);
  for (const Member& member : value.members) {
    count_one(member.name.size(), member.line);
    count(member.value);
  }
}

void DocumentBuilder::count_one(std::size_t text_bytes, int line) {
  values_ += 1;
  text_bytes_ += text_bytes;
  if (values_ > kMostValues) fail(line, fmt::format("the file has more than {} values", kMostValues));
  if (text_bytes_ > kMostTextBytes)
    fail(line, fmt::format("the file's texts are longer than {} bytes", kMostTextBytes));
}

std::string DocumentBuilder::pointer() const {
  std::string steps;
  for (const Open& open : open_) {
    if (open.value.kind == Value::Kind::kList) {
      steps += fmt::format("/{}", open.value.items.size());
    } else if (open.has_key) {
      steps += "/" + pointer_step(open.value.members.back().name);
    }
  }
  return steps;
}

}  // namespace gyre::jobs::spec
