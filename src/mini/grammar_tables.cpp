// SPDX-License-Identifier: MIT
// What the model is taught to know: one row a fact, in both languages.
#include "mini/grammar.h"

namespace nibble {

const std::string_view kGrammarTables = R"(# capitals zh en czh cen
法國|France|巴黎|Paris
日本|Japan|東京|Tokyo
英國|England|倫敦|London
德國|Germany|柏林|Berlin
義大利|Italy|羅馬|Rome
西班牙|Spain|馬德里|Madrid
葡萄牙|Portugal|里斯本|Lisbon
希臘|Greece|雅典|Athens
埃及|Egypt|開羅|Cairo
印度|India|新德里|New Delhi
泰國|Thailand|曼谷|Bangkok
越南|Vietnam|河內|Hanoi
韓國|South Korea|首爾|Seoul
俄羅斯|Russia|莫斯科|Moscow
加拿大|Canada|渥太華|Ottawa
美國|the United States|華盛頓|Washington
古巴|Cuba|哈瓦那|Havana
秘魯|Peru|利馬|Lima
智利|Chile|聖地牙哥|Santiago
阿根廷|Argentina|布宜諾斯艾利斯|Buenos Aires
澳洲|Australia|坎培拉|Canberra
奧地利|Austria|維也納|Vienna
波蘭|Poland|華沙|Warsaw
挪威|Norway|奧斯陸|Oslo
瑞典|Sweden|斯德哥爾摩|Stockholm
芬蘭|Finland|赫爾辛基|Helsinki
丹麥|Denmark|哥本哈根|Copenhagen
愛爾蘭|Ireland|都柏林|Dublin
土耳其|Turkey|安卡拉|Ankara
肯亞|Kenya|奈洛比|Nairobi
匈牙利|Hungary|布達佩斯|Budapest
菲律賓|the Philippines|馬尼拉|Manila
# nouns zh en catzh caten
狗|dog|動物|animal
貓|cat|動物|animal
馬|horse|動物|animal
牛|cow|動物|animal
羊|sheep|動物|animal
豬|pig|動物|animal
兔子|rabbit|動物|animal
老虎|tiger|動物|animal
獅子|lion|動物|animal
大象|elephant|動物|animal
熊|bear|動物|animal
猴子|monkey|動物|animal
狐狸|fox|動物|animal
青蛙|frog|動物|animal
老鼠|mouse|動物|animal
鯨魚|whale|動物|animal
蘋果|apple|水果|fruit
香蕉|banana|水果|fruit
葡萄|grape|水果|fruit
橘子|orange|水果|fruit
西瓜|watermelon|水果|fruit
草莓|strawberry|水果|fruit
桃子|peach|水果|fruit
梨子|pear|水果|fruit
檸檬|lemon|水果|fruit
芒果|mango|水果|fruit
櫻桃|cherry|水果|fruit
鳳梨|pineapple|水果|fruit
汽車|car|交通工具|vehicle
火車|train|交通工具|vehicle
飛機|plane|交通工具|vehicle
船|ship|交通工具|vehicle
公車|bus|交通工具|vehicle
腳踏車|bicycle|交通工具|vehicle
卡車|truck|交通工具|vehicle
直升機|helicopter|交通工具|vehicle
桌子|table|家具|piece of furniture
椅子|chair|家具|piece of furniture
床|bed|家具|piece of furniture
沙發|sofa|家具|piece of furniture
書櫃|bookcase|家具|piece of furniture
書桌|desk|家具|piece of furniture
紅蘿蔔|carrot|蔬菜|vegetable
番茄|tomato|蔬菜|vegetable
馬鈴薯|potato|蔬菜|vegetable
洋蔥|onion|蔬菜|vegetable
南瓜|pumpkin|蔬菜|vegetable
高麗菜|cabbage|蔬菜|vegetable
吉他|guitar|樂器|instrument
鋼琴|piano|樂器|instrument
小提琴|violin|樂器|instrument
鼓|drum|樂器|instrument
笛子|flute|樂器|instrument
小號|trumpet|樂器|instrument
襯衫|shirt|衣物|piece of clothing
帽子|hat|衣物|piece of clothing
外套|coat|衣物|piece of clothing
裙子|skirt|衣物|piece of clothing
襪子|sock|衣物|piece of clothing
手套|glove|衣物|piece of clothing
鎚子|hammer|工具|tool
扳手|wrench|工具|tool
鋸子|saw|工具|tool
梯子|ladder|工具|tool
鏟子|shovel|工具|tool
螺絲起子|screwdriver|工具|tool
# categories zh en list2zh list3zh list4zh list2en list3en list4en
動物|animals|狗、貓|狗、貓、馬|狗、貓、馬、牛|dog, cat|dog, cat, horse|dog, cat, horse, cow
水果|fruits|蘋果、香蕉|蘋果、香蕉、葡萄|蘋果、香蕉、葡萄、橘子|apple, banana|apple, banana, grape|apple, banana, grape, orange
交通工具|vehicles|汽車、火車|汽車、火車、飛機|汽車、火車、飛機、船|car, train|car, train, plane|car, train, plane, ship
家具|pieces of furniture|桌子、椅子|桌子、椅子、床|桌子、椅子、床、沙發|table, chair|table, chair, bed|table, chair, bed, sofa
蔬菜|vegetables|紅蘿蔔、番茄|紅蘿蔔、番茄、馬鈴薯|紅蘿蔔、番茄、馬鈴薯、洋蔥|carrot, tomato|carrot, tomato, potato|carrot, tomato, potato, onion
樂器|instruments|吉他、鋼琴|吉他、鋼琴、小提琴|吉他、鋼琴、小提琴、鼓|guitar, piano|guitar, piano, violin|guitar, piano, violin, drum
衣物|pieces of clothing|襯衫、帽子|襯衫、帽子、外套|襯衫、帽子、外套、裙子|shirt, hat|shirt, hat, coat|shirt, hat, coat, skirt
工具|tools|鎚子、扳手|鎚子、扳手、鋸子|鎚子、扳手、鋸子、梯子|hammer, wrench|hammer, wrench, saw|hammer, wrench, saw, ladder
顏色|colours|紅色、藍色|紅色、藍色、綠色|紅色、藍色、綠色、黃色|red, blue|red, blue, green|red, blue, green, yellow
運動|sports|籃球、足球|籃球、足球、網球|籃球、足球、網球、游泳|basketball, football|basketball, football, tennis|basketball, football, tennis, swimming
# colours zh en
紅色|red
藍色|blue
綠色|green
黃色|yellow
黑色|black
白色|white
紫色|purple
棕色|brown
灰色|grey
粉紅色|pink
金色|golden
銀色|silver
# coloured zh en czh cen
香蕉|a banana|黃色|yellow
草莓|a strawberry|紅色|red
檸檬|a lemon|黃色|yellow
雪|snow|白色|white
草|grass|綠色|green
天空|the sky|藍色|blue
煤炭|coal|黑色|black
紅蘿蔔|a carrot|橘色|orange
南瓜|a pumpkin|橘色|orange
葡萄|a grape|紫色|purple
青蛙|a frog|綠色|green
牛奶|milk|白色|white
巧克力|chocolate|棕色|brown
番茄|a tomato|紅色|red
大象|an elephant|灰色|grey
海洋|the ocean|藍色|blue
鹽|salt|白色|white
血|blood|紅色|red
烏鴉|a crow|黑色|black
樹葉|a leaf|綠色|green
茄子|an eggplant|紫色|purple
雲|a cloud|白色|white
# opposites zh ozh en oen
大|小|big|small
高|矮|tall|short
長|短|long|brief
快|慢|fast|slow
熱|冷|hot|cold
新|舊|new|old
好|壞|good|bad
上|下|up|down
左|右|left|right
前|後|front|back
裡|外|inside|outside
多|少|many|few
輕|重|light|heavy
明亮|黑暗|bright|dark
乾|濕|dry|wet
軟|硬|soft|hard
遠|近|far|near
早|晚|early|late
開|關|open|closed
強|弱|strong|weak
胖|瘦|fat|thin
貧窮|富有|poor|rich
安靜|吵鬧|quiet|noisy
乾淨|骯髒|clean|dirty
開心|難過|happy|sad
容易|困難|easy|difficult
真|假|true|false
生|死|alive|dead
深|淺|deep|shallow
寬|窄|wide|narrow
空|滿|empty|full
開始|結束|start|end
買|賣|buy|sell
輸|贏|lose|win
進|出|enter|leave
哭|笑|cry|laugh
愛|恨|love|hate
問|答|ask|answer
白天|夜晚|day|night
甜|苦|sweet|bitter
# definitions zh en aen dzh den kzh ken
老師|teacher|a teacher|教學生讀書的人|a person who teaches students|學生|teaches
醫生|doctor|a doctor|替病人看病的人|a person who treats sick people|病人|sick
護士|nurse|a nurse|照顧病人的人|a person who cares for patients|照顧|patients
警察|police officer|a police officer|保護大家安全的人|a person who keeps people safe|安全|safe
消防員|firefighter|a firefighter|撲滅火災的人|a person who puts out fires|火災|fires
農夫|farmer|a farmer|種田和養動物的人|a person who grows food and raises animals|種田|grows
廚師|cook|a cook|做菜給大家吃的人|a person who prepares meals|做菜|meals
司機|driver|a driver|開車載人的人|a person who drives a vehicle|開車|drives
畫家|painter|a painter|用顏料畫圖的人|a person who paints pictures|畫圖|paints
作家|writer|a writer|寫書和文章的人|a person who writes books|寫書|writes
歌手|singer|a singer|唱歌給大家聽的人|a person who sings songs|唱歌|sings
學生|student|a student|在學校學習的人|a person who studies at a school|學習|studies
圖書館|library|a library|可以借書和看書的地方|a place where you can read and borrow books|借書|books
醫院|hospital|a hospital|病人接受治療的地方|a place where sick people are treated|治療|treated
學校|school|a school|學生上課的地方|a place where students learn|上課|learn
餐廳|restaurant|a restaurant|可以吃飯的地方|a place where people eat meals|吃飯|eat
博物館|museum|a museum|展示古老東西的地方|a place that shows old and precious things|展示|shows
機場|airport|an airport|飛機起飛和降落的地方|a place where planes take off and land|起飛|take off
車站|station|a station|等車和搭車的地方|a place where people wait for trains|等車|wait
公園|park|a park|可以散步和休息的地方|a place to walk and rest|散步|walk
銀行|bank|a bank|存錢和領錢的地方|a place where money is kept|存錢|money
市場|market|a market|買菜和賣菜的地方|a place where food is bought and sold|買菜|bought
電腦|computer|a computer|能計算和處理資料的機器|a machine that computes and processes data|計算|computes
電話|telephone|a telephone|讓人遠距離通話的工具|a device for talking over long distances|通話|talking
時鐘|clock|a clock|告訴我們時間的工具|a device that shows the time|時間|time
雨傘|umbrella|an umbrella|下雨時用來擋雨的東西|a thing that keeps the rain off|擋雨|rain
鑰匙|key|a key|用來開鎖的東西|a thing that opens a lock|開鎖|lock
字典|dictionary|a dictionary|解釋字詞意思的書|a book that explains words|解釋|explains
地圖|map|a map|畫出地方位置的圖|a drawing that shows where places are|位置|places
相機|camera|a camera|用來拍照的機器|a machine that takes photos|拍照|photos
冰箱|refrigerator|a refrigerator|讓食物保持冰涼的機器|a machine that keeps food cold|冰涼|cold
望遠鏡|telescope|a telescope|用來看遠方東西的工具|a tool for looking at faraway things|遠方|faraway
太陽|sun|the sun|給地球光和熱的恆星|the star that gives the earth light and heat|恆星|star
月亮|moon|the moon|繞著地球轉的天體|the body that circles the earth|地球|earth
地球|earth|the earth|我們居住的行星|the planet we live on|行星|planet
火山|volcano|a volcano|會噴出岩漿的山|a mountain that throws out lava|岩漿|lava
沙漠|desert|a desert|很少下雨的乾燥地方|a dry place with very little rain|乾燥|dry
島|island|an island|四面都是水的陸地|land with water on all sides|陸地|water
彩虹|rainbow|a rainbow|雨後天空出現的七色光|the coloured arc in the sky after rain|七色|arc
冰|ice|ice|結凍的水|frozen water|結凍|frozen
雨|rain|rain|從雲裡落下的水|water that falls from clouds|落下|falls
風|wind|wind|流動的空氣|moving air|空氣|air
程式|program|a program|告訴電腦怎麼做的指令|a list of instructions for a computer|指令|instructions
語言模型|language model|a language model|預測下一個字的程式|a program that predicts the next word|預測|predicts
演算法|algorithm|an algorithm|解決問題的步驟|a series of steps that solves a problem|步驟|steps
恐龍|dinosaur|a dinosaur|很久以前的大型爬蟲類|a large reptile of long ago|爬蟲類|reptile
蜜蜂|bee|a bee|會採花蜜的昆蟲|an insect that makes honey|花蜜|honey
友情|friendship|friendship|朋友之間的感情|the bond between friends|朋友|bond
# animals zh en szh sen legs legszh fzh fen hzh hen
狗|dog|汪汪|woof|4|四|骨頭|bones|屋子裡|a house
貓|cat|喵喵|meow|4|四|魚|fish|屋子裡|a house
牛|cow|哞哞|moo|4|四|草|grass|農場|a farm
羊|sheep|咩咩|baa|4|四|草|grass|山坡上|a hillside
鴨子|duck|呱呱|quack|2|兩|穀子|grain|池塘邊|a pond
公雞|rooster|喔喔|cock-a-doodle-doo|2|兩|玉米|corn|農場|a farm
青蛙|frog|嘓嘓|ribbit|4|四|蟲子|insects|池塘邊|a pond
老虎|tiger|吼吼|roar|4|四|肉|meat|森林裡|the forest
蜜蜂|bee|嗡嗡|buzz|6|六|花蜜|nectar|蜂巢裡|a hive
小鳥|bird|啾啾|tweet|2|兩|種子|seeds|樹上|a tree
老鼠|mouse|吱吱|squeak|4|四|乳酪|cheese|洞裡|a hole
馬|horse|嘶嘶|neigh|4|四|乾草|hay|馬廄裡|a stable
# numbers n zh en
0|零|zero
1|一|one
2|二|two
3|三|three
4|四|four
5|五|five
6|六|six
7|七|seven
8|八|eight
9|九|nine
10|十|ten
11|十一|eleven
12|十二|twelve
13|十三|thirteen
14|十四|fourteen
15|十五|fifteen
16|十六|sixteen
17|十七|seventeen
18|十八|eighteen
19|十九|nineteen
20|二十|twenty
30|三十|thirty
40|四十|forty
50|五十|fifty
60|六十|sixty
70|七十|seventy
80|八十|eighty
90|九十|ninety
100|一百|one hundred
# pronouns_zh p
他
她
那個人
這個人
# pronouns_en p be o poss
he|is|him|his
she|is|her|her
that man|is|him|his
that woman|is|her|her
# heroes zh en frzh fren dozh doen
小狗|little dog|小貓|kitten|玩球|played ball
小貓|kitten|小狗|little dog|曬太陽|sat in the sun
小熊|little bear|蜜蜂|bee|找蜂蜜|looked for honey
小兔子|little rabbit|烏龜|turtle|賽跑|ran a race
小象|little elephant|小鳥|little bird|唱歌|sang a song
小狐狸|little fox|松鼠|squirrel|撿果子|gathered nuts
小鴨子|little duck|青蛙|frog|游泳|went for a swim
小羊|little lamb|小牛|calf|吃青草|ate green grass
小猴子|little monkey|長頸鹿|giraffe|摘香蕉|picked bananas
小老鼠|little mouse|獅子|lion|解開繩子|untied a rope
# places zh en
森林裡|in the forest
大海邊|by the sea
山上|on a mountain
農場裡|on a farm
花園裡|in a garden
城市裡|in a city
月亮上|on the moon
小島上|on an island
沙漠裡|in the desert
河邊|by a river
古堡裡|in an old castle
雪地裡|in the snow
)";

}  // namespace nibble
