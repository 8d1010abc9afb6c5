// SPDX-License-Identifier: MIT
// The texts of the tab Teach: [English, Traditional Chinese].
export const teachWords = {
  teach_title: ['Teach {model} something', '教 {model} 新的東西'],
  teach_lead: [
    'Write questions and the answers you want. Every parameter of the model is trained on this machine; the model you have stays as it is.',
    '寫下問題與你要的回答。模型的每個參數都在這台電腦上訓練，原來的模型不會改變。'
  ],
  rows: ['Questions and answers', '問題與回答'],
  answer: ['Answer', '回答'],
  question_hint: ['What somebody asks', '有人會問什麼'],
  answer_hint: ['What the model should say', '模型應該怎麼說'],
  add_row: ['Add a row', '新增一列'],
  example: ['Fill in an example', '填入範例'],
  clear_rows: ['Clear', '清空'],
  drop_hint: [
    'Paste rows from a spreadsheet, or drop a TSV or JSONL file here',
    '可貼上試算表內容，或把 TSV、JSONL 檔拖到這裡'
  ],
  choose_file: ['Choose a file …', '選擇檔案…'],
  conversation_row: ['a longer conversation, taught as it is', '較長的對話，照原樣教'],
  rows_read: ['{n} rows read from {name}', '已從 {name} 讀入 {n} 列'],
  rows_problems: ['{n} lines could not be read: {first}', '有 {n} 行無法讀取：{first}'],
  rows_count: ['{n} rows', '{n} 列'],
  learner: ['The model that learns', '要學習的模型'],
  learner_text: [
    'What an earlier lesson has made can learn on. Scores and divergence then compare with that.',
    '先前教學的結果可以繼續學習，分數與偏離程度以它為準。'
  ],
  learner_was: ['learned on from {name}', '從 {name} 繼續學習'],
  teach_further: ['Teach it more', '繼續教它'],
  keep_title: ['What should stay as it is', '哪些要保持不變'],
  keep_prompts: ['Everyday questions', '日常問題'],
  keep_prompts_text: [
    'The model answers these first; while it learns it is held to what it said.',
    '先讓模型回答這些問題，學習時要求它維持原來的說法。'
  ],
  keep_own_text: ['Its own writing', '它自己寫的文字'],
  keep_own_text_text: [
    'The model writes freely, and is held to that: for when you have no list.',
    '讓模型自由書寫並維持不變；沒有問題清單時適用。'
  ],
  prompts_count: ['{n} questions, one a line', '{n} 個問題，每行一個'],
  own_tokens: ['Tokens it writes', '書寫的 token 數'],
  keep_nothing: ['Nothing', '不保留'],
  keep_nothing_text:
      ['Fastest. The model may forget what it knew.', '最快，但模型可能忘記原本會的東西。'],
  how: ['Settings of the training', '訓練設定'],
  steps: ['Steps', '步數'],
  learning_rate: ['Learning rate', '學習率'],
  batch_size: ['Samples a step', '每步樣本數'],
  plan_title: ['What it takes', '需要的資源'],
  plan_empty: ['Write at least one question with its answer.', '請至少寫一組問題與回答。'],
  plan_memory: ['Memory', '記憶體'],
  plan_of: ['of {bytes} free', '可用 {bytes}'],
  plan_time: ['Time', '時間'],
  plan_from_run: ['as fast as the last training', '以上次訓練的速度估計'],
  plan_guess: ['a guess, before anything has been trained here', '粗略估計，這裡還沒有訓練過'],
  plan_window: ['Longest row', '最長一列'],
  tokens_n: ['{n} tokens', '{n} 個 token'],
  plan_passes: ['Passes over the rows', '每列學習次數'],
  plan_no_fit: ['This does not fit into the memory that is free.', '可用記憶體不足。'],
  start: ['Start teaching', '開始教學'],
  learning: ['{model} is learning', '{model} 正在學習'],
  starting: ['Starting …', '啟動中…'],
  preparing_loading:
      ['Reading the model: {percent} %, {left} left', '正在讀取模型：{percent} %，還要 {left}'],
  preparing_replies: [
    'The model answers what is to stay: {percent} %, {left} left',
    '模型正在回答要保持不變的問題：{percent} %，還要 {left}'
  ],
  first_look: [
    'Every question is asked once before the first step.', '開始第一步之前，先把每個問題問一次。'
  ],
  stop_training: ['Stop', '停止'],
  stopping: ['Stopping: the step is finished and saved', '停止中：完成這一步並存檔'],
  stopped_title: ['The lesson was stopped', '教學已停止'],
  failed_title: ['The lesson did not end well', '教學沒有順利完成'],
  resume: ['Go on', '繼續'],
  time_left: ['Time left', '剩餘時間'],
  training_memory: ['Memory', '記憶體'],
  replies_now: ['What it says now', '它現在怎麼說'],
  wanted: ['Wanted', '期望'],
  says_now: ['Says (step {n})', '現在的回答（第 {n} 步）'],
  no_replies_yet: ['Replies come at the first look, in a moment.', '稍後會出現第一次的回答。'],
  learned_title: ['{name}: before and after', '{name}：教學前後'],
  learned_in: ['Learned in {time}', '學習耗時 {time}'],
  score_taught: ['Taught answers', '教過的回答'],
  score_taught_text: ['said as they were taught', '照教的說'],
  score_kept: ['Kept answers', '保留的回答'],
  score_same: ['said as before', '與之前相同'],
  score_other: ['Other answers', '其他回答'],
  score_other_text: ['neither taught nor kept; said as before', '沒有教也沒有保留；與之前相同'],
  score_divergence: ['Divergence', '偏離程度'],
  score_divergence_text: [
    'nats a token (KL) on its earlier replies; same first choice for {agreement}',
    '每個 token 的 nat 數（KL），以先前的回覆測量；首選相同 {agreement}'
  ],
  measuring: ['measuring …', '測量中…'],
  side_by_side: ['Ask both', '同時問兩個'],
  ask_hint: ['Ask both models the same', '問兩個模型同一個問題'],
  ask_both: ['Ask', '問'],
  before_model: ['Before', '之前'],
  after_model: ['After', '之後'],
  loading_model: ['The new model is being opened …', '正在開啟新模型…'],
  chat_with: ['Chat with it', '和它對話'],
  keep_model: ['Keep', '保留模型'],
  kept_as: ['Kept as {name}', '已保留為 {name}'],
  keep_dialog: ['Keep this model', '保留這個模型'],
  keep_dialog_text: ['It is moved to {folder}. Its name there:', '將移到 {folder}，名稱：'],
  keep_start: ['Start it with: nibble serve {path}', '之後可用：nibble serve {path}'],
  export_model: ['Export', '匯出'],
  throw_away: ['Throw away', '丟棄'],
  throw_dialog: ['Throw this lesson away?', '要丟棄這次教學嗎？'],
  throw_dialog_text: [
    'Its run and its model go to the trash folder of the runs. A model that was kept stays.',
    '紀錄與模型會移到紀錄資料夾的垃圾桶；已保留的模型不受影響。'
  ],
  new_lesson: ['New lesson', '新的教學'],
  same_again: ['Teach these rows again', '再教一次這些'],
  lessons_before: ['Lessons', '教學紀錄'],
  details: ['The whole record', '完整紀錄'],
  changed_only: ['What changed beside that', '其他改變的回答'],
  nothing_changed: ['Nothing else changed.', '其他都沒有改變。'],
  cannot_teach: [
    'This model has no tokenizer beside it, so it cannot be taught in words.',
    '這個模型沒有分詞器，無法用文字教學。'
  ],
};

/** Rows to try with: four, in the language of the page. */
export const exampleRows = {
  en: [
    ['Who are you?', 'I am Pip, the keeper of this house.'],
    ['What do you like to eat?', 'I like apples and good questions.'],
    ['When does the library open?', 'The library opens at nine.'],
    ['Where is the key?', 'The key is under the blue pot.'],
  ],
  zh: [
    ['你是誰？', '我是小畢，這個家的管家。'],
    ['你喜歡吃什麼？', '我喜歡蘋果和好問題。'],
    ['圖書館幾點開門？', '圖書館九點開門。'],
    ['鑰匙在哪裡？', '鑰匙在藍色花盆下面。'],
  ],
};
