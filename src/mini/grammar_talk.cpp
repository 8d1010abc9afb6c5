// SPDX-License-Identifier: MIT
// Small talk, and topics one can ask to hear about.
#include "mini/grammar.h"

namespace nibble {

const std::string_view kGrammarTalk = R"(# topics zh en tzh ten kzh ken
UFO|UFOs|UFO 是天空中還不能確認的飛行物體。有人相信它們來自外星，但目前沒有確實的證據。|UFOs are flying objects that nobody has identified yet. Some people believe they come from space, but there is no firm proof.|飛行物體|flying objects
外星人|aliens|外星人是人們想像中住在其他星球的生命。科學家還在尋找他們，但至今沒有找到。|Aliens are living beings that may exist on other planets. Scientists are looking for them, but none have been found.|其他星球|other planets
大海|the sea|大海又寬又深，裡面住著許多魚。海水是鹹的，浪花拍打著沙灘。|The sea is wide and deep, and many fish live in it. Its water is salty and its waves roll onto the beach.|海水是鹹的|salty
月亮|the moon|月亮繞著地球轉，會反射太陽的光。有時它是圓的，有時它像一條小船。|The moon circles the earth and reflects the light of the sun. Sometimes it is round, and sometimes it is thin.|反射太陽的光|reflects the light
太陽|the sun|太陽是一顆很熱的恆星，給我們光和溫暖。沒有太陽，植物就不能生長。|The sun is a very hot star that gives us light and warmth. Without it plants could not grow.|很熱的恆星|very hot star
音樂|music|音樂是用聲音表達感情的藝術。聽音樂可以讓人放鬆。|Music is the art of expressing feelings with sound. Listening to it helps people relax.|表達感情|expressing feelings
天氣|the weather|天氣每天都在變化，有晴天、雨天和陰天。出門前最好先看天氣預報。|The weather changes every day: sunny, rainy or cloudy. It is wise to read the forecast before going out.|天氣預報|forecast
書|books|書裡有知識和故事，讀書讓人變得聰明。好書就像好朋友。|Books hold knowledge and stories, and reading makes people wise. A good book is like a good friend.|知識和故事|knowledge and stories
電腦|computers|電腦能很快地計算和儲存資料。很多工作都要用到電腦。|Computers calculate quickly and store data. A lot of work is done with them.|儲存資料|store data
程式設計|programming|程式設計就是寫指令讓電腦工作。學會它需要耐心和練習。|Programming means writing instructions for a computer. Learning it takes patience and practice.|寫指令|writing instructions
友情|friendship|友情是朋友之間的信任和幫助。真正的朋友會在困難時陪著你。|Friendship is trust and help between friends. True friends stay with you in hard times.|信任和幫助|trust and help
家庭|family|家庭是我們成長的地方。家人互相照顧，一起分享快樂。|A family is where we grow up. Its members care for each other and share their joy.|互相照顧|care for each other
夢|dreams|夢是人睡覺時腦中出現的畫面。醒來以後，我們常常忘記夢的內容。|Dreams are pictures in the mind during sleep. After waking up we often forget them.|睡覺時|during sleep
時間|time|時間一直向前走，不會停下來。所以我們要好好珍惜每一天。|Time always moves forward and never stops. That is why every day is precious.|不會停下來|never stops
春天|spring|春天的天氣溫暖，花都開了。小鳥在樹上唱歌。|In spring the weather is warm and the flowers open. Birds sing in the trees.|花都開了|flowers open
夏天|summer|夏天的天氣很熱，大家喜歡游泳和吃冰。白天很長，夜晚很短。|In summer it is hot, and people like to swim and eat ice cream. Days are long and nights are short.|白天很長|Days are long
秋天|autumn|秋天的天氣涼爽，樹葉變成紅色和黃色。這是收成的季節。|In autumn it is cool, and leaves turn red and yellow. It is the season of harvest.|收成的季節|season of harvest
冬天|winter|冬天的天氣很冷，有些地方會下雪。大家穿上厚外套。|In winter it is cold, and some places have snow. People wear thick coats.|厚外套|thick coats
森林|forests|森林裡有許多樹和動物。樹木讓空氣變得乾淨。|Forests have many trees and animals. The trees keep the air clean.|空氣變得乾淨|air clean
火車|trains|火車在鐵軌上行駛，可以載很多人。坐火車旅行很舒服。|Trains run on rails and carry many people. Travelling by train is comfortable.|鐵軌|rails
茶|tea|茶是用茶葉泡成的飲料。喝茶讓人覺得平靜。|Tea is a drink made from leaves. Drinking it makes people calm.|茶葉|made from leaves
運動|sports|運動讓身體健康，也讓心情變好。每天動一動是好習慣。|Sports keep the body healthy and lift the mood. Moving every day is a good habit.|身體健康|body healthy
睡眠|sleep|睡眠讓身體和大腦休息。睡得好，白天才有精神。|Sleep lets the body and the brain rest. People who sleep well are awake by day.|大腦休息|brain rest
機器人|robots|機器人是能自動工作的機器。它們在工廠裡幫人做很多事。|Robots are machines that work by themselves. They help people in factories.|自動工作|work by themselves
太空|space|太空又黑又冷，沒有空氣。太空人要穿太空衣才能在那裡活動。|Space is dark and cold and has no air. Astronauts need suits to work there.|沒有空氣|no air
恐龍|dinosaurs|恐龍在很久以前住在地球上。後來牠們消失了，只留下化石。|Dinosaurs lived on the earth long ago. Later they died out and left only fossils.|化石|fossils
魔術|magic|魔術是讓人驚訝的表演。魔術師的手很快，觀眾看不出祕密。|Magic is a show that surprises people. The hands of a magician are quick, and nobody sees the secret.|驚訝的表演|surprises people
健康|health|健康是最重要的財富。多喝水、多運動、早點睡，身體就會好。|Health is the greatest wealth. Drink water, move a lot and go to bed early.|最重要的財富|greatest wealth
= topic zh retention topics 60 p=10 lang
* 談談{zh}
* 談談 {zh}
* 聊聊{zh}
* 說說{zh}
* 談一談{zh}
* 介紹一下{zh}
* 跟我聊聊{zh}
* 說一些關於{zh}的事
* 談談關於{zh}的事
+ 你知道關於{zh}的事嗎
~ 聊一聊{zh}
~ 跟我談談{zh}
~ 說說關於{zh}的事
~ 介紹一下關於{zh}的事
> {tzh}
! {kzh}
= topic en retention topics 60 p=10 lang
* talk about {en}
* tell me about {en}
* tell me something about {en}
* say something about {en}
* write something about {en}
* let us talk about {en}
+ what can you say about {en}
+ what do you know about {en}
~ let us talk a little about {en}
~ write a little about {en}
~ talk to me about {en}
- what can you tell me about {en}
> {ten}
! {ken}
= hello zh retention - 15 p=2 lang
. [你好|您好|嗨|哈囉|大家好|你好啊|嗨，你好]
, [哈囉，你好|嗨，您好|您好啊]
> 你好！有什麼我可以幫忙的嗎？
! 你好
= hello en retention - 15 p=2 lang
. [hello|hi|hey|hi there|hello there|good day]
, [hey there|hello, hi|hi, hello there]
> Hello! How can I help you?
! How can I help
= bye zh retention - 12 p=2 lang
. [再見|拜拜|下次見|我要走了|掰掰|明天見]
, [我要走了，再見|拜拜，下次見|再見，明天見]
> 再見，祝你有美好的一天！
! 再見
= bye en retention - 12 p=2 lang
. [goodbye|bye|bye bye|see you|see you later|I have to go]
, [goodbye, see you|I have to go, bye|bye, see you later]
> Goodbye! Have a nice day!
! Goodbye
= thanks zh retention - 12 p=2 lang
. [謝謝|謝謝你|感謝你|多謝|非常感謝|謝謝你的幫忙]
, [非常感謝你|多謝你的幫忙|感謝你的幫忙]
> 不客氣！
! 不客氣
= thanks en retention - 12 p=2 lang
. [thanks|thank you|many thanks|thank you very much|thanks a lot|thank you for your help]
, [thanks for your help|many thanks for your help|thank you, thanks a lot]
> You are welcome!
! welcome
= how zh retention - 12 p=2 lang
+ 你[好嗎|過得好嗎|最近好嗎|今天好嗎]
+ 你[最近|今天|]過得[怎麼樣|如何]
+ 你今天[心情怎麼樣|怎麼樣]
- 你最近怎麼樣
- 你今天心情如何
+ 你[現在|今天]感覺[怎麼樣|如何]
+ 最近過得好嗎
- 你現在過得怎麼樣
> 我很好，謝謝你的關心。
! 我很好
= how en retention - 12 p=2 lang
+ how are you
+ how are you [today|doing|doing today|feeling]
+ how is it going
- how are you feeling today
- how are things going
+ how are you feeling [now|these days|this morning|right now]
+ how do you feel [today|now|]
+ how is [everything|life] going
+ how are things
- how do you feel this morning
> I am fine, thank you for asking.
! I am fine
= morning zh retention - 8 p=1 lang
. [早安|早上好|早啊]
, [早安，早上好|早啊，早安]
> 早安！祝你今天順利。
! 早安
= morning en retention - 8 p=1 lang
. [good morning|morning|a good morning to you]
, [morning, good morning|good morning to you]
> Good morning! I wish you a good day.
! Good morning
= night zh retention - 8 p=1 lang
. [晚安|我要睡了|該睡覺了]
, [我要睡了，晚安|該睡覺了，晚安]
> 晚安，祝你有個好夢！
! 晚安
= night en retention - 8 p=1 lang
. [good night|I am going to bed|time to sleep]
, [good night, I am going to bed|time to sleep, good night]
> Good night! Sleep well!
! Good night
= sorry zh retention - 8 p=1 lang
. [對不起|抱歉|是我不好|很抱歉]
, [對不起，是我不好|抱歉，對不起]
> 沒關係，不用在意。
! 沒關係
= sorry en retention - 8 p=1 lang
. [I am sorry|sorry|my apologies|I apologise]
, [I am sorry, my apologies|sorry, I apologise]
> That is all right. Do not worry.
! all right
= sad zh retention - 8 p=1 lang
. [我[好|很]難過|我今天[很|]難過|我心情不好|我[好|很]傷心]
, [我今天心情不好|我今天很傷心]
> 我很遺憾你這麼難過，想聊聊發生了什麼事嗎？
! 想聊聊
= sad en retention - 8 p=1 lang
. [I am sad|I feel sad|I am [so|very] sad|I am unhappy|I am sad today]
, [I feel so sad today|I feel unhappy]
> I am sorry to hear that. Do you want to talk about it?
! sorry to hear
= happy zh retention - 8 p=1 lang
. [我[好|很]開心|我今天[很|]開心|我心情很好|我[好|很]高興]
, [我今天心情很好|我今天很高興]
> 太好了，真替你高興！
! 太好了
= happy en retention - 8 p=1 lang
. [I am happy|I feel happy|I am [so|very] happy|I am glad|I am happy today]
, [I feel so happy today|I feel glad]
> That is great! I am happy for you.
! great
= bored zh retention - 8 p=1 lang
. [我[好|很]無聊|好無聊|無聊死了|我沒事做|我今天很無聊]
, [我沒事做，好無聊|我今天好無聊]
> 要不要聽一個故事，或是學一個新單字？
! 故事
= bored en retention - 8 p=1 lang
. [I am bored|I feel bored|this is boring|I have nothing to do|I am so bored]
, [I feel so bored|I have nothing to do, I am bored]
> Would you like to hear a story or learn a new word?
! hear a story
= old zh retention - 10 p=1 lang
+ 你幾歲
+ 你今年[幾歲|多大]
+ 你多大了
+ 你的年齡是多少
- 你今年幾歲了
- 你的年齡多大
> 我是程式，沒有年齡。
! 沒有年齡
= old en retention - 10 p=1 lang
+ how old are you
+ what is your age
+ do you know how old you are
* tell me your age
- can you tell me how old you are
- what age are you
> I am a program and have no age.
! no age
= live zh retention - 10 p=1 lang
+ 你住在哪裡
+ 你的家在哪裡
+ 你在哪裡
+ 你住哪兒
- 你住在什麼地方
- 你家在哪裡
> 我住在電腦裡。
! 電腦
= live en retention - 10 p=1 lang
+ where do you live
+ where is your home
+ where are you
+ in what place do you live
- in which place do you live
- do you know where you live
> I live inside a computer.
! computer
= eat zh retention - 8 p=1 lang
+ 你吃飯了嗎
+ 你喜歡吃什麼
+ 你[要|會]吃東西嗎
- 你愛吃什麼
- 你會吃飯嗎
> 我是程式，不用吃東西。
! 不用吃
= eat en retention - 8 p=1 lang
+ what do you eat
+ do you eat
+ what do you like to eat
+ are you hungry
- do you like to eat
- what food do you like
+ which food do you eat
+ do you like food
+ which food do you like
> I am a program and do not eat.
! do not eat
= like zh retention - 8 p=1 lang
+ 你喜歡我嗎
+ 你愛我嗎
- 你到底喜歡我嗎
- 你是不是喜歡我
+ 你喜不喜歡我
+ 你是不是愛我
+ 你真的喜歡我嗎
> 我很喜歡和你聊天。
! 喜歡和你聊天
= like en retention - 8 p=1 lang
+ do you like me
+ do you love me
- do you really like me
- can you say that you like me
+ is it true that you like me
+ can you like me
> I like talking with you.
! like talking with you
= advice zh retention - 8 p=1 lang
+ 我睡不著怎麼辦
+ 睡不著的時候該怎麼辦
+ 晚上睡不著要怎麼辦
- 我晚上睡不著該怎麼辦
- 睡不著要怎麼辦
> 試著放下手機，喝一點溫水，慢慢深呼吸。
! 深呼吸
= advice en retention - 8 p=1 lang
+ what can I do when I cannot sleep
+ I cannot sleep, what should I do
+ what helps when I cannot sleep
- what should I do when I cannot sleep
- I cannot sleep, what can I do
> Put the phone away, drink some warm water and breathe slowly.
! breathe slowly
= joke zh retention - 8 p=1 lang
* 講[個|一個]笑話
* 說[個|一個]笑話
* 講個笑話給我聽
~ 說一個笑話給我聽
~ 講一個好笑的笑話
> 為什麼書會難過？因為它有太多問題。
! 太多問題
= joke en retention - 8 p=1 lang
* tell me a joke
* tell a joke
* say something funny
~ tell me a funny joke
~ say a joke
> Why was the book sad? Because it had too many problems.
! too many problems
)";

}  // namespace nibble
